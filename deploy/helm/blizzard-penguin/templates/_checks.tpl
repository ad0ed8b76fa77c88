{{/* Refuse values that would make an invalid or unsafe manifest. */}}
{{- define "release.checks" -}}
{{- if not (or .Values.config.pipelines .Values.config.tables) }}
{{- fail "config has no pipelines: give at least one entry under `config.pipelines` or `config.tables`, as in configs/example.yaml" }}
{{- end }}
{{- $master := .Values.config.spark.master }}
{{- if not (regexMatch "^(local\\[[0-9, ]+\\]|spark://.+|sc://.+)$" $master) }}
{{- fail (printf "config.spark.master is %q: give local[N], spark://HOST:PORT or sc://HOST:PORT. Executors in pods need deploy/kubernetes/overlays/spark-on-kubernetes; local[*] would be the node's cores" $master) }}
{{- end }}
{{- if and (gt (int (default 1 .Values.blizzard.replicas)) 1) (not (dig "global" "replicas" "uri" "" .Values.config)) }}
{{- fail (printf "blizzard.replicas is %d, and config.global.replicas is missing: give its uri, the folder of their leases" (int .Values.blizzard.replicas)) }}
{{- end }}
{{- if gt (len .Release.Name) 43 }}
{{- fail (printf "the release name %q is too long: give one of 43 characters at most, so that the names of its pods fit a label" .Release.Name) }}
{{- end }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" .Release.Name) }}
{{- fail (printf "the release name %q names no Service: begin with a letter, and use a-z, 0-9 and - only" .Release.Name) }}
{{- end }}
{{- $port := include "release.port" . | int }}
{{- if or (lt $port 1) (gt $port 65535) }}
{{- fail (printf "config.metrics.address is %q: give a port from 1 to 65535" .Values.config.metrics.address) }}
{{- end }}
{{- /* A text without a variable. */}}
{{- $plain := "(?:[^\"$]|\\$[^\"{])+" }}
{{- range $key := list "password" "client_secret" "token" "value" "Authorization" }}
{{- if regexMatch (printf "\"%s\":\"%s\"" $key $plain) (toJson $.Values.config.connections) }}
{{- fail (printf "config.connections has a `%s` in plain text, and a ConfigMap is no place for it: put it into a Secret and give \"${file:/run/secrets/blizzard/NAME}\"" $key) }}
{{- end }}
{{- end }}
{{- if regexMatch (printf "://[^/@\":]*:%s@" ($plain | replace "[^" "[^/@")) (toJson .Values.config.connections) }}
{{- fail "config.connections has a `uri` with a password, and a ConfigMap is no place for it: give `user`, and `password` as \"${file:/run/secrets/blizzard/NAME}\"" }}
{{- end }}
{{- $options := "(?i)aws_secret_access_key|aws_session_token|azure_storage_(?:account_key|access_key|sas_key|sas_token|token|client_secret)|azure_client_secret|google_service_account_key" }}
{{- with regexFind (printf "\"(?:%s)\":\"%s\"" $options $plain) (toJson .Values.config) }}
{{- fail (printf "config has %s… in plain text, and a ConfigMap is no place for it: put it into a Secret and give \"${file:/run/secrets/blizzard/NAME}\"" (regexFind "[A-Za-z_]+" .)) }}
{{- end }}
{{- $grace := dig "global" "advanced" "shutdown_grace" "1m" .Values.config | toString }}
{{- if regexMatch "^[0-9]+(s|m|h)?$" $grace }}
{{- $unit := dict "s" 1 "m" 60 "h" 3600 }}
{{- $secs := mul (regexFind "^[0-9]+" $grace | int) (get $unit (regexFind "[smh]$" $grace | default "s")) }}
{{- if lt (int .Values.terminationGracePeriodSeconds) (add $secs 30 | int) }}
{{- fail (printf "terminationGracePeriodSeconds is %d, and config.global.advanced.shutdown_grace %s: Kubernetes would kill the daemons before they have saved. Give %d or more" (int .Values.terminationGracePeriodSeconds) $grace (add $secs 30)) }}
{{- end }}
{{- end }}
{{- end }}
