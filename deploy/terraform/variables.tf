variable "name" {
  description = "Beginning of the names of buckets, roles and queues. Bucket names are global: choose one that nobody has."
  type        = string
}

variable "source_prefix" {
  description = "Directory of the source in its bucket."
  type        = string
  default     = "events/"

  validation {
    condition     = can(regex("^[^/*?$][^*?$]*/$", var.source_prefix))
    error_message = "A prefix ends with / and does not begin with one. In a right * ? and $ would mean more than themselves."
  }
}

variable "table_prefix" {
  description = "Directory of the table in the lake's bucket."
  type        = string
  default     = "tables/events/"

  validation {
    condition     = can(regex("^[^/*?$][^*?$]*/$", var.table_prefix))
    error_message = "A prefix ends with / and does not begin with one. In a right * ? and $ would mean more than themselves."
  }
}

variable "oidc_provider_arn" {
  description = "The cluster's OIDC provider: arn:aws:iam::ACCOUNT:oidc-provider/oidc.eks.REGION.amazonaws.com/id/ID."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:oidc-provider/[^/]+/", var.oidc_provider_arn))
    error_message = "Give the ARN of the provider, not the address of the cluster."
  }
}

variable "namespace" {
  description = "Namespace of the pods."
  type        = string
  default     = "blizzard"
}

variable "service_accounts" {
  description = "Service account of each daemon. Helm calls them RELEASE-blizzard and RELEASE-penguin, kustomize blizzard and penguin."
  type        = object({ blizzard = string, penguin = string })
  default     = { blizzard = "events-blizzard", penguin = "events-penguin" }
}

variable "notifications" {
  description = "Send the source's new names to a queue that Blizzard reads, for `notifications` of the source."
  type        = bool
  default     = false
}
