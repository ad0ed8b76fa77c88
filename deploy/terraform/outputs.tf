output "source_uri" {
  description = "For `source_uri` in the configuration."
  value       = "s3://${aws_s3_bucket.this["source"].id}/${var.source_prefix}"
}

output "table_uri" {
  description = "For `table_uri` in the configuration."
  value       = "s3://${aws_s3_bucket.this["lake"].id}/${trimsuffix(var.table_prefix, "/")}"
}

locals {
  helm_values = {
    cloud = "aws"
    blizzard = {
      serviceAccount = {
        annotations = { "eks.amazonaws.com/role-arn" = aws_iam_role.this["blizzard"].arn }
      }
    }
    penguin = {
      serviceAccount = {
        annotations = { "eks.amazonaws.com/role-arn" = aws_iam_role.this["penguin"].arn }
      }
    }
  }
}

output "helm_values" {
  description = "Values of the chart that give each pod its role."
  value       = yamlencode(local.helm_values)
}

output "queue_url" {
  description = "Where new names are sent to with `notifications`."
  value       = one(aws_sqs_queue.new_files[*].url)
}
