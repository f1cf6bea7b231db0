{{/* The image of every container. */}}
{{- define "giveway.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "giveway.container" -}}
image: {{ include "giveway.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/*
The objects of a file that kustomize uses as well, in the release's namespace. `replace` is a list of pairs of text, `omit`
has kinds to leave out, `labels` is what every object gets besides its own, `unused` resources that no role need allow.
`text` is used instead of the file. `names` has by resource the only names that a role allows; without names the rule goes,
because a rule without names allows all. `podAnnotations` are those of a Deployment's pods.
*/}}
{{- define "giveway.objects" -}}
{{- $root := .root -}}
{{- $text := .text | default ($root.Files.Get (printf "files/%s" .file)) | required (printf "the chart has no files/%s" .file) -}}
{{- range .replace }}{{ $text = replace (index . 0) (index . 1) $text }}{{ end -}}
{{- $text = replace "giveway-system" $root.Release.Namespace $text -}}
{{- $clusterWide := list "ClusterRole" "ClusterRoleBinding" "FlowSchema" "MutatingAdmissionPolicy" "MutatingAdmissionPolicyBinding" "MutatingWebhookConfiguration" "Namespace" "ValidatingAdmissionPolicy" "ValidatingAdmissionPolicyBinding" "ValidatingWebhookConfiguration" -}}
{{- $omit := .omit | default list -}}
{{- $labels := .labels | default dict -}}
{{- $unused := .unused | default list -}}
{{- $names := .names | default dict -}}
{{- $podAnnotations := .podAnnotations | default dict -}}
{{- range splitList "\n---\n" $text }}
{{- $object := fromYaml . }}
{{- if and $object (not (has $object.kind $omit)) }}
{{- $metadata := $object.metadata }}
{{- $_ := set $metadata "labels" (merge (dict "app.kubernetes.io/name" "giveway") ($metadata.labels | default dict) $labels) }}
{{- if not (has $object.kind $clusterWide) }}{{ $_ := set $metadata "namespace" $root.Release.Namespace }}{{ end }}
{{- if and (or $unused $names) (hasKey $object "rules") }}
{{- $rules := list }}
{{- range $object.rules }}
{{- $named := hasKey $names (first .resources) }}
{{- if $named }}{{ $_ := set . "resourceNames" (get $names (first .resources)) }}{{ end }}
{{- if not (or (has (first .resources) $unused) (and $named (not .resourceNames))) }}{{ $rules = append $rules . }}{{ end }}
{{- end }}
{{- $_ := set $object "rules" $rules }}
{{- end }}
{{- if and (eq $object.kind "ServiceAccount") $root.Values.imagePullSecrets }}
{{- $secrets := list }}
{{- range $root.Values.imagePullSecrets }}{{ $secrets = append $secrets (dict "name" .) }}{{ end }}
{{- $_ := set $object "imagePullSecrets" $secrets }}
{{- end }}
{{- if and $podAnnotations (eq $object.kind "Deployment") }}
{{- $_ := set $object.spec.template.metadata "annotations" $podAnnotations }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Of a Deployment: metadata, and what its pods have in common. `name` is webhook or reconciler. */}}
{{- define "giveway.metadata" -}}
name: giveway-{{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  app.kubernetes.io/name: giveway
{{- end -}}

{{- define "giveway.selector" -}}
app.kubernetes.io/name: giveway
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "giveway.podMetadata" -}}
{{- $values := index .root.Values .name -}}
labels:
  {{- include "giveway.selector" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "giveway.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- include "giveway.selector" . | nindent 6 }}
{{- end -}}

{{- define "giveway.pod" -}}
{{- $values := index .root.Values .name -}}
{{- $name := .name -}}
serviceAccountName: giveway-{{ .name }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $values.affinity }}
affinity:
  {{- toYaml $values.affinity | nindent 2 }}
{{- else if .zones }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 50
      podAffinityTerm:
        topologyKey: topology.kubernetes.io/zone
        labelSelector:
          matchLabels:
            {{- include "giveway.selector" (dict "name" $name) | nindent 12 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- if kindIs "slice" $values.topologySpreadConstraints }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- else }}
topologySpreadConstraints:
{{ include "giveway.spread" (dict "name" $name) }}
{{- end }}
{{- end -}}

{{- define "giveway.certificateOptions" -}}
- --secret={{ .Release.Namespace }}/giveway-tls
- --service={{ .Release.Namespace }}/giveway-webhook
{{- if not .Values.staticEntries }}
- --webhook-config=giveway
{{- end }}
- --dir=/run/giveway/certs
- --log
{{- end -}}

{{- define "giveway.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "giveway.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  # A pod that does not work is not worth holding up a drain for.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "giveway.selector" . | nindent 6 }}
{{- end -}}
