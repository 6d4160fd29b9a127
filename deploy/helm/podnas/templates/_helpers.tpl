{{/* The name of everything: the release's, with "podnas" in it. */}}
{{- define "podnas.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "podnas" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-podnas" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels by which objects find the pod. They can't be changed: not in a StatefulSet. */}}
{{- define "podnas.selector" -}}
app.kubernetes.io/name: {{ include "podnas.name" . }}
{{- end -}}

{{/* Of objects and of the pod. Their values change with the image alone, so that a new version of the
chart does not start the pod anew. A label has fewer characters than a tag may have. */}}
{{- define "podnas.recommendedLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: storage
app.kubernetes.io/part-of: podnas
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | trimAll "-_." | quote }}
{{- end -}}

{{/* Of objects. */}}
{{- define "podnas.labels" -}}
{{ include "podnas.selector" . }}
{{ include "podnas.partLabels" . }}
{{- end -}}

{{/* Of what the guard lets go, which has no app.kubernetes.io/name. */}}
{{- define "podnas.partLabels" -}}
{{ include "podnas.recommendedLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The pod's PriorityClass: one that exists, or the chart's own. */}}
{{- define "podnas.priorityClass" -}}
{{- if .Values.priorityClassName -}}
{{- .Values.priorityClassName -}}
{{- else if .Values.priorityClass.create -}}
{{- include "podnas.name" . -}}
{{- end -}}
{{- end -}}

{{/* The level of Pod Security that the pod meets. */}}
{{- define "podnas.podSecurity" -}}
{{- if or .Values.kernelHandles (eq .Values.quota "kernel") .Values.disk.hostPath .Values.diskImage.size .Values.ha.enabled -}}
privileged
{{- else -}}
{{- .Values.podSecurity -}}
{{- end -}}
{{- end -}}
