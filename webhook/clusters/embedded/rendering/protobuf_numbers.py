"""Numbers of the fields in the protobuf messages that kubectl sends: a message, then its fields in their order.

Numbering starts at 1; `7:name` jumps. `>Message` is a message whose fields JSON shows in the object that holds it.
Messages are called as the official client's models are. A line that is indented continues the one before. Left out are
statuses, which a new object does not bring, and what no `kubectl create` makes, such as rare volumes.
"""

from __future__ import annotations

_MESSAGES = """
>LocalObjectReference name
>ProbeHandler exec httpGet tcpSocket grpc
>VolumeSource hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs
  persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume
  quobyte azureDisk photonPersistentDisk portworxVolume scaleIO projected storageos csi ephemeral image
AuthenticationV1TokenRequest metadata spec status
CoreV1ResourceClaim name request
RbacV1Subject kind apiGroup name namespace
V1Affinity nodeAffinity podAffinity podAntiAffinity
V1AppArmorProfile type localhostProfile
V1BoundObjectReference kind apiVersion name uid
V1Capabilities add drop
V1ClientIPConfig timeoutSeconds
V1ClusterRole metadata rules aggregationRule
V1ClusterRoleBinding metadata subjects roleRef
V1ConfigMap metadata data binaryData immutable
V1ConfigMapEnvSource >LocalObjectReference optional
V1ConfigMapKeySelector >LocalObjectReference key optional
V1ConfigMapProjection >LocalObjectReference items 4:optional
V1ConfigMapVolumeSource >LocalObjectReference items defaultMode optional
V1Container name image command args workingDir ports env resources volumeMounts livenessProbe readinessProbe
  lifecycle terminationMessagePath imagePullPolicy securityContext stdin stdinOnce tty envFrom
  terminationMessagePolicy volumeDevices startupProbe resizePolicy restartPolicy
V1ContainerPort name hostPort containerPort protocol hostIP
V1ContainerResizePolicy resourceName restartPolicy
V1CronJob metadata spec status
V1CronJobSpec schedule startingDeadlineSeconds concurrencyPolicy suspend jobTemplate successfulJobsHistoryLimit
  failedJobsHistoryLimit timeZone
V1DeleteOptions gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun
  ignoreStoreReadErrorWithClusterBreakingPotential
V1Deployment metadata spec status
V1DeploymentSpec replicas selector template strategy minReadySeconds revisionHistoryLimit paused
  9:progressDeadlineSeconds
V1DeploymentStrategy type rollingUpdate
V1DownwardAPIProjection items
V1DownwardAPIVolumeFile path fieldRef resourceFieldRef mode
V1DownwardAPIVolumeSource items defaultMode
V1EmptyDirVolumeSource medium sizeLimit
V1EnvFromSource prefix configMapRef secretRef
V1EnvVar name value valueFrom
V1EnvVarSource fieldRef resourceFieldRef configMapKeyRef secretKeyRef
V1Eviction metadata deleteOptions
V1ExecAction command
V1GRPCAction port service
V1HTTPGetAction path port host scheme httpHeaders
V1HTTPHeader name value
V1HostAlias ip hostnames
V1HostPathVolumeSource path type
V1Job metadata spec status
V1JobSpec parallelism completions activeDeadlineSeconds selector manualSelector template backoffLimit
  ttlSecondsAfterFinished completionMode suspend podFailurePolicy backoffLimitPerIndex maxFailedIndexes
  podReplacementPolicy managedBy successPolicy
V1JobTemplateSpec metadata spec
V1KeyToPath key path mode
V1LabelSelector matchLabels matchExpressions
V1LabelSelectorRequirement key operator values
V1Lifecycle postStart preStop stopSignal
V1LifecycleHandler exec httpGet tcpSocket sleep
V1LocalObjectReference name
V1ManagedFieldsEntry manager operation apiVersion time 6:fieldsType fieldsV1 subresource
V1Namespace metadata spec status
V1NamespaceSpec finalizers
V1NodeAffinity requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution
V1NodeSelector nodeSelectorTerms
V1NodeSelectorRequirement key operator values
V1NodeSelectorTerm matchExpressions matchFields
V1NonResourceAttributes path verb
V1ObjectFieldSelector apiVersion fieldPath
V1ObjectMeta name generateName namespace selfLink uid resourceVersion generation creationTimestamp deletionTimestamp
  deletionGracePeriodSeconds labels annotations ownerReferences finalizers 17:managedFields
V1ObjectReference kind namespace name uid apiVersion resourceVersion fieldPath
V1OwnerReference kind 3:name uid apiVersion controller blockOwnerDeletion
V1PersistentVolumeClaimVolumeSource claimName readOnly
V1Pod metadata spec status
V1PodAffinity requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution
V1PodAffinityTerm labelSelector namespaces topologyKey namespaceSelector matchLabelKeys mismatchLabelKeys
V1PodAntiAffinity requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution
V1PodDNSConfig nameservers searches options
V1PodDNSConfigOption name value
V1PodDisruptionBudget metadata spec status
V1PodDisruptionBudgetSpec minAvailable selector maxUnavailable unhealthyPodEvictionPolicy
V1PodFailurePolicy rules
V1PodFailurePolicyOnExitCodesRequirement containerName operator values
V1PodFailurePolicyOnPodConditionsPattern type status
V1PodFailurePolicyRule action onExitCodes onPodConditions
V1PodOS name
V1PodReadinessGate conditionType
V1PodResourceClaim name 3:resourceClaimName resourceClaimTemplateName
V1PodSchedulingGate name
V1PodSecurityContext seLinuxOptions runAsUser runAsNonRoot supplementalGroups fsGroup runAsGroup sysctls
  windowsOptions fsGroupChangePolicy seccompProfile appArmorProfile supplementalGroupsPolicy seLinuxChangePolicy
V1PodSpec volumes containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy
  nodeSelector serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC securityContext
  imagePullSecrets hostname subdomain affinity schedulerName initContainers automountServiceAccountToken tolerations
  hostAliases priorityClassName priority dnsConfig shareProcessNamespace readinessGates runtimeClassName
  enableServiceLinks preemptionPolicy overhead topologySpreadConstraints ephemeralContainers setHostnameAsFQDN os
  hostUsers schedulingGates resourceClaims resources
V1PodTemplateSpec metadata spec
V1PolicyRule verbs apiGroups resources resourceNames nonResourceURLs
V1Preconditions uid resourceVersion
V1PreferredSchedulingTerm weight preference
V1PriorityClass metadata value globalDefault description preemptionPolicy
V1Probe >ProbeHandler initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold
  terminationGracePeriodSeconds
V1ProjectedVolumeSource sources defaultMode
V1ResourceAttributes namespace verb group version resource subresource name fieldSelector labelSelector
V1ResourceFieldSelector containerName resource divisor
V1ResourceQuota metadata spec status
V1ResourceQuotaSpec hard scopes scopeSelector
V1ResourceRequirements limits requests claims
V1Role metadata rules
V1RoleBinding metadata subjects roleRef
V1RoleRef apiGroup kind name
V1RollingUpdateDeployment maxUnavailable maxSurge
V1Scale metadata spec status
V1ScaleSpec replicas
V1ScopeSelector matchExpressions
V1ScopedResourceSelectorRequirement scopeName operator values
V1SeccompProfile type localhostProfile
V1Secret metadata data type stringData immutable
V1SecretEnvSource >LocalObjectReference optional
V1SecretKeySelector >LocalObjectReference key optional
V1SecretProjection >LocalObjectReference items 4:optional
V1SecretVolumeSource secretName items defaultMode optional
V1SecurityContext capabilities privileged seLinuxOptions runAsUser runAsNonRoot readOnlyRootFilesystem
  allowPrivilegeEscalation runAsGroup procMount windowsOptions seccompProfile appArmorProfile
V1SelfSubjectAccessReview metadata spec status
V1SelfSubjectAccessReviewSpec resourceAttributes nonResourceAttributes
V1SelfSubjectReview metadata status
V1Service metadata spec status
V1ServiceAccount metadata secrets imagePullSecrets automountServiceAccountToken
V1ServiceAccountTokenProjection audience expirationSeconds path
V1ServicePort name protocol port targetPort nodePort appProtocol
V1ServiceSpec ports selector clusterIP type externalIPs 7:sessionAffinity loadBalancerIP loadBalancerSourceRanges
  externalName externalTrafficPolicy healthCheckNodePort publishNotReadyAddresses sessionAffinityConfig
  17:ipFamilyPolicy clusterIPs ipFamilies allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy
  trafficDistribution
V1SessionAffinityConfig clientIP
V1SleepAction seconds
V1SuccessPolicy rules
V1SuccessPolicyRule succeededIndexes succeededCount
V1Sysctl name value
V1TCPSocketAction port host
V1TokenRequestSpec audiences 3:boundObjectRef expirationSeconds
V1Toleration key operator value effect tolerationSeconds
V1TopologySpreadConstraint maxSkew topologyKey whenUnsatisfiable labelSelector minDomains nodeAffinityPolicy
  nodeTaintsPolicy matchLabelKeys
V1Volume name >VolumeSource
V1VolumeDevice name devicePath
V1VolumeMount name readOnly mountPath subPath mountPropagation subPathExpr recursiveReadOnly
V1VolumeProjection secret downwardAPI configMap serviceAccountToken clusterTrustBundle
V1WeightedPodAffinityTerm weight podAffinityTerm
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
