{{/* Every helper takes (dict "root" $ "daemon" "blizzard"). */}}

{{- define "daemon.name" -}}
{{ .root.Release.Name }}-{{ .daemon }}
{{- end }}

{{- define "daemon.account" -}}
{{- with (index .root.Values .daemon).serviceAccount -}}
{{ .create | ternary (include "daemon.name" $) .name }}
{{- end }}
{{- end }}

{{- define "daemon.selector" -}}
app.kubernetes.io/name: {{ .daemon }}
{{ include "release.selector" .root }}
{{- end }}

{{- define "daemon.labels" -}}
app.kubernetes.io/name: {{ .daemon }}
{{ include "release.labels" .root }}
{{- end }}

{{- define "release.selector" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: blizzard-penguin
{{- end }}

{{- define "release.labels" -}}
{{ include "release.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- with merge dict (.own | default dict) (.Values.labels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The daemons of this configuration: Blizzard has no work without pipelines. */}}
{{- define "release.daemons" -}}
{{ if .Values.config.pipelines }}blizzard {{ end }}penguin
{{- end }}

{{- define "release.port" -}}
{{ regexFind "[0-9]+$" .Values.config.metrics.address }}
{{- end }}

{{- define "release.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}
