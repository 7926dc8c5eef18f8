// Package check decodes the manifests of the folder deploy into the Go types of the modules that define them: Kubernetes's, KServe's and Kustomize's.
package check

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kserve/kserve/pkg/apis/serving/v1alpha1"
	"github.com/kserve/kserve/pkg/apis/serving/v1beta1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/yaml"
)

// resource is an object of KServe as it is applied: without a status, which is the controller's.
type resource[Spec any] struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            Spec `json:"spec"`
}

// kinds are what there may be, by apiVersion and kind.
var kinds = map[string]func() any{
	"v1 ConfigMap":                                     func() any { return new(core.ConfigMap) },
	"v1 PersistentVolumeClaim":                         func() any { return new(core.PersistentVolumeClaim) },
	"v1 Service":                                       func() any { return new(core.Service) },
	"apps/v1 Deployment":                               func() any { return new(apps.Deployment) },
	"autoscaling/v2 HorizontalPodAutoscaler":           func() any { return new(autoscaling.HorizontalPodAutoscaler) },
	"policy/v1 PodDisruptionBudget":                    func() any { return new(policy.PodDisruptionBudget) },
	"kustomize.config.k8s.io/v1beta1 Kustomization":    func() any { return new(kustomize.Kustomization) },
	"serving.kserve.io/v1alpha1 ServingRuntime":        func() any { return new(resource[v1alpha1.ServingRuntimeSpec]) },
	"serving.kserve.io/v1alpha1 ClusterServingRuntime": func() any { return new(resource[v1alpha1.ServingRuntimeSpec]) },
	"serving.kserve.io/v1beta1 InferenceService":       func() any { return new(resource[v1beta1.InferenceServiceSpec]) },
}

// decode says why a document is not what its kind is.
func decode(doc []byte) error {
	var m meta.TypeMeta
	if err := yaml.Unmarshal(doc, &m); err != nil {
		return err
	}
	kind := kinds[m.APIVersion+" "+m.Kind]
	if kind == nil {
		return fmt.Errorf("unknown: %s %s", m.APIVersion, m.Kind)
	}
	return yaml.UnmarshalStrict(doc, kind())
}

// manifests are the documents of the folder, by file and number.
func manifests(t *testing.T) map[string][]byte {
	out := map[string][]byte{}
	root := "../../../deploy"
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		b, err := os.ReadFile(path)
		for i, doc := range bytes.Split(b, []byte("\n---\n")) {
			out[fmt.Sprintf("%s %d", strings.TrimPrefix(path, root+"/"), i)] = append(doc, '\n')
		}
		return err
	})
	if err != nil || len(out) < 12 {
		t.Fatalf("%d documents, %v", len(out), err)
	}
	return out
}

func TestManifestsAreOfTheirKinds(t *testing.T) {
	seen := map[string]bool{}
	for name, doc := range manifests(t) {
		if err := decode(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var m meta.TypeMeta
		if yaml.Unmarshal(doc, &m) == nil {
			seen[m.APIVersion+" "+m.Kind] = true
		}
	}
	for kind := range kinds {
		if !seen[kind] {
			t.Errorf("there is no %s", kind)
		}
	}
}

// free are the keys whose values have keys that anybody may choose.
var free = []string{"labels", "annotations", "matchLabels", "data", "requests", "limits", "selector"}

// key is a line with a key, at the beginning of an element of a list or not.
var key = regexp.MustCompile(`^( *(?:- )?)([A-Za-z]+):( |$)`)

// Each key matters: where one letter more makes another of it, the document is refused.
func TestMisspeltKeysAreRefused(t *testing.T) {
	total := 0
	for name, doc := range manifests(t) {
		lines := strings.Split(string(doc), "\n")
		indent, within := -1, "" // of the last key that is free
		tried := 0
		for i, line := range lines {
			m := key.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			at := len(m[1])
			if at <= indent {
				indent, within = -1, ""
			}
			if indent >= 0 && !(within == "selector" && m[2] == "matchLabels") {
				continue
			}
			for _, f := range free {
				if f == m[2] && strings.TrimSpace(line[len(m[0])-len(m[3]):]) == "" {
					indent, within = at, f
				}
			}
			bad := append([]string(nil), lines...)
			bad[i] = m[1] + m[2] + "x:" + line[len(m[0])-len(m[3]):]
			if decode([]byte(strings.Join(bad, "\n"))) == nil {
				t.Errorf("%s: line %d: %sx is taken for a key", name, i+1, m[2])
			}
			tried++
		}
		if total += tried; tried < 4 {
			t.Errorf("%s: %d keys tried", name, tried)
		}
	}
	if total < 200 {
		t.Errorf("%d keys tried", total)
	}
}

// What is of another type than its field is refused, too, and so is a key that is there twice.
func TestWrongValuesAreRefused(t *testing.T) {
	docs := manifests(t)
	for _, c := range []struct{ name, old, new string }{
		{"kubernetes/deployment.yaml 0", "containerPort: 8080", `containerPort: "8080"`},
		{"kubernetes/deployment.yaml 0", "readOnly: true\n            - name: config", "readOnly: yess\n            - name: config"},
		{"kubernetes/deployment.yaml 0", `memory: 1Gi`, `memory: 1GiB`},
		{"kubernetes/autoscaler.yaml 0", "maxReplicas: 10", "maxReplicas: ten"},
		{"kubernetes/autoscaler.yaml 0", "maxReplicas: 10", "maxReplicas: 10\n  maxReplicas: 12"},
		{"kserve/servingruntime.yaml 0", "autoSelect: true", "autoSelect: 1"},
		{"kserve/inferenceservice.yaml 0", "scaleTarget: 70", "scaleTarget: 70%"},
		{"kserve/inferenceservice-grpc.yaml 0", "containerPort: 9000", "containerPort: [9000]"},
	} {
		bad := strings.Replace(string(docs[c.name]), c.old, c.new, 1)
		if bad == string(docs[c.name]) {
			t.Errorf("%s: no %q in it", c.name, c.old)
		} else if decode([]byte(bad)) == nil {
			t.Errorf("%s: %q is taken", c.name, c.new)
		}
	}
}
