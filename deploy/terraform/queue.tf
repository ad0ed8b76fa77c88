# Off by default. With it `notifications.uri` is the output `queue_url`.
resource "aws_sqs_queue" "new_files" {
  count                      = var.notifications ? 1 : 0
  name                       = "${var.name}-new-files"
  message_retention_seconds  = 345600
  visibility_timeout_seconds = 300
  receive_wait_time_seconds  = 20
  sqs_managed_sse_enabled    = true

  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters[0].arn
    maxReceiveCount     = 5
  })
}

resource "aws_sqs_queue" "dead_letters" {
  count                     = var.notifications ? 1 : 0
  name                      = "${var.name}-new-files-dead-letters"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue_redrive_allow_policy" "dead_letters" {
  count     = var.notifications ? 1 : 0
  queue_url = aws_sqs_queue.dead_letters[0].id

  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.new_files[0].arn]
  })
}

data "aws_caller_identity" "this" {}

# Only this account's bucket may send.
data "aws_iam_policy_document" "queue" {
  count = var.notifications ? 1 : 0

  statement {
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.new_files[0].arn]

    principals {
      type        = "Service"
      identifiers = ["s3.amazonaws.com"]
    }

    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [aws_s3_bucket.this["source"].arn]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [data.aws_caller_identity.this.account_id]
    }
  }
}

resource "aws_sqs_queue_policy" "new_files" {
  count     = var.notifications ? 1 : 0
  queue_url = aws_sqs_queue.new_files[0].id
  policy    = data.aws_iam_policy_document.queue[0].json
}

resource "aws_s3_bucket_notification" "source" {
  count  = var.notifications ? 1 : 0
  bucket = aws_s3_bucket.this["source"].id

  queue {
    queue_arn     = aws_sqs_queue.new_files[0].arn
    events        = ["s3:ObjectCreated:*"]
    filter_prefix = var.source_prefix
  }

  # S3 tries whether it may send before it takes the setting.
  depends_on = [aws_sqs_queue_policy.new_files]
}

data "aws_iam_policy_document" "hints" {
  count = var.notifications ? 1 : 0

  statement {
    actions   = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
    resources = [aws_sqs_queue.new_files[0].arn]
  }
}

resource "aws_iam_role_policy" "hints" {
  count  = var.notifications ? 1 : 0
  name   = "hints"
  role   = aws_iam_role.this["blizzard"].id
  policy = data.aws_iam_policy_document.hints[0].json
}
