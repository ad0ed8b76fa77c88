# Buckets, roles and a queue for one configuration on AWS. docs/guides/terraform.md says how to use it.
terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}
