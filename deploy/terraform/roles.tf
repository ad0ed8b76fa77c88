# One role for each daemon. Only the cluster's service account of that daemon may take it.
data "aws_iam_policy_document" "trust" {
  for_each = var.service_accounts

  statement {
    actions = ["sts:AssumeRoleWithWebIdentity"]

    principals {
      type        = "Federated"
      identifiers = [var.oidc_provider_arn]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:sub"
      values   = ["system:serviceaccount:${var.namespace}:${each.value}"]
    }

    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:aud"
      values   = ["sts.amazonaws.com"]
    }
  }
}

locals {
  issuer = replace(var.oidc_provider_arn, "/^.*:oidc-provider\\//", "")
}

# Blizzard reads the source and never writes to it.
data "aws_iam_policy_document" "source" {
  statement {
    sid       = "ListSource"
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.this["source"].arn]

    # IfExists: a GET of a missing key names no prefix, and the answer must be 404, not 403.
    condition {
      test     = "StringLikeIfExists"
      variable = "s3:prefix"
      values   = ["${var.source_prefix}*"]
    }
  }

  statement {
    sid       = "ReadSource"
    actions   = ["s3:GetObject"]
    resources = ["${aws_s3_bucket.this["source"].arn}/${var.source_prefix}*"]
  }
}

# Both daemons write below the table's directory: data, state and the table's log.
data "aws_iam_policy_document" "table" {
  statement {
    sid       = "ListTable"
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.this["lake"].arn]

    condition {
      test     = "StringLikeIfExists"
      variable = "s3:prefix"
      values   = ["${var.table_prefix}*"]
    }
  }

  statement {
    sid       = "WriteTable"
    actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    resources = ["${aws_s3_bucket.this["lake"].arn}/${var.table_prefix}*"]
  }
}

resource "aws_iam_role" "this" {
  for_each           = var.service_accounts
  name               = "${var.name}-${each.key}"
  assume_role_policy = data.aws_iam_policy_document.trust[each.key].json
}

resource "aws_iam_role_policy" "source" {
  name   = "source"
  role   = aws_iam_role.this["blizzard"].id
  policy = data.aws_iam_policy_document.source.json
}

resource "aws_iam_role_policy" "table" {
  for_each = aws_iam_role.this
  name     = "table"
  role     = each.value.id
  policy   = data.aws_iam_policy_document.table.json
}
