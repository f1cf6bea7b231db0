"""Numbers of the fields in the protobuf messages that kubectl sends: a message, then its fields in their order.

Numbering starts at 1; `7:name` jumps. Messages are called as the official client's models are. A line that is indented
continues the one before. Left out are statuses, which a new object does not bring, and what no `kubectl create` makes,
such as volumes and probes.
"""

from __future__ import annotations

_MESSAGES = """
AuthenticationV1TokenRequest metadata spec status
RbacV1Subject kind apiGroup name namespace
V1BoundObjectReference kind apiVersion name uid
V1ClusterRole metadata rules aggregationRule
V1ClusterRoleBinding metadata subjects roleRef
V1ConfigMap metadata data binaryData immutable
V1Container name image command args workingDir ports env resources volumeMounts livenessProbe readinessProbe
  lifecycle terminationMessagePath imagePullPolicy securityContext stdin stdinOnce tty envFrom
  terminationMessagePolicy volumeDevices startupProbe resizePolicy restartPolicy
V1ContainerPort name hostPort containerPort protocol hostIP
V1CronJob metadata spec status
V1CronJobSpec schedule startingDeadlineSeconds concurrencyPolicy suspend jobTemplate successfulJobsHistoryLimit
  failedJobsHistoryLimit timeZone
V1DeleteOptions gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun
  ignoreStoreReadErrorWithClusterBreakingPotential
V1Deployment metadata spec status
V1DeploymentSpec replicas selector template strategy minReadySeconds revisionHistoryLimit paused
  9:progressDeadlineSeconds
V1DeploymentStrategy type rollingUpdate
V1Eviction metadata deleteOptions
V1Job metadata spec status
V1JobSpec parallelism completions activeDeadlineSeconds selector manualSelector template backoffLimit
  ttlSecondsAfterFinished completionMode suspend podFailurePolicy backoffLimitPerIndex maxFailedIndexes
  podReplacementPolicy managedBy successPolicy
V1JobTemplateSpec metadata spec
V1LabelSelector matchLabels matchExpressions
V1LabelSelectorRequirement key operator values
V1LocalObjectReference name
V1ManagedFieldsEntry manager operation apiVersion time 6:fieldsType fieldsV1 subresource
V1Namespace metadata spec status
V1NamespaceSpec finalizers
V1NonResourceAttributes path verb
V1ObjectMeta name generateName namespace selfLink uid resourceVersion generation creationTimestamp deletionTimestamp
  deletionGracePeriodSeconds labels annotations ownerReferences finalizers 17:managedFields
V1ObjectReference kind namespace name uid apiVersion resourceVersion fieldPath
V1OwnerReference kind 3:name uid apiVersion controller blockOwnerDeletion
V1PodDisruptionBudget metadata spec status
V1PodDisruptionBudgetSpec minAvailable selector maxUnavailable unhealthyPodEvictionPolicy
V1PodSpec volumes containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy
  nodeSelector serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC securityContext
  imagePullSecrets hostname subdomain affinity schedulerName initContainers automountServiceAccountToken tolerations
  hostAliases priorityClassName priority dnsConfig shareProcessNamespace readinessGates runtimeClassName
  enableServiceLinks preemptionPolicy overhead topologySpreadConstraints ephemeralContainers setHostnameAsFQDN os
  hostUsers schedulingGates resourceClaims resources
V1PodTemplateSpec metadata spec
V1PolicyRule verbs apiGroups resources resourceNames nonResourceURLs
V1Preconditions uid resourceVersion
V1PriorityClass metadata value globalDefault description preemptionPolicy
V1ResourceAttributes namespace verb group version resource subresource name fieldSelector labelSelector
V1ResourceQuota metadata spec status
V1ResourceQuotaSpec hard scopes scopeSelector
V1ResourceRequirements limits requests claims
V1Role metadata rules
V1RoleBinding metadata subjects roleRef
V1RoleRef apiGroup kind name
V1RollingUpdateDeployment maxUnavailable maxSurge
V1Scale metadata spec status
V1ScaleSpec replicas
V1Secret metadata data type stringData immutable
V1SelfSubjectAccessReview metadata spec status
V1SelfSubjectAccessReviewSpec resourceAttributes nonResourceAttributes
V1SelfSubjectReview metadata status
V1Service metadata spec status
V1ServiceAccount metadata secrets imagePullSecrets automountServiceAccountToken
V1ServicePort name protocol port targetPort nodePort appProtocol
V1ServiceSpec ports selector clusterIP type externalIPs 7:sessionAffinity loadBalancerIP loadBalancerSourceRanges
  externalName externalTrafficPolicy healthCheckNodePort publishNotReadyAddresses sessionAffinityConfig
  17:ipFamilyPolicy clusterIPs ipFamilies allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy
  trafficDistribution
V1TokenRequestSpec audiences 3:boundObjectRef expirationSeconds
"""

NUMBERS: dict[str, dict[int, str]] = {}
"""By message and number: the names of the fields."""

for _line in _MESSAGES.strip().replace("\n  ", " ").splitlines():
    _message, *_fields = _line.split()
    _number = 0
    NUMBERS[_message] = {}
    for _field in _fields:
        _jump, _, _name = _field.rpartition(":")
        _number = int(_jump) if _jump else _number + 1
        NUMBERS[_message][_number] = _name
