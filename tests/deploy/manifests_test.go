//go:build linux

package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"spc"
	"spc/serve/host"
)

// object is a mapping of YAML.
type object = map[string]any

// documents reads a file of YAML.
func documents(t *testing.T, path string) (list []object) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var v object
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		list = append(list, v)
	}
}

// at is what is in a document by keys and indices, nil where there is nothing.
func at(v any, keys ...any) any {
	for _, k := range keys {
		switch m := v.(type) {
		case object:
			v = m[k.(string)]
		case []any:
			if k.(int) >= len(m) {
				return nil
			}
			v = m[k.(int)]
		default:
			return nil
		}
	}
	return v
}

// find is what has to be in the first document of a file.
func find(t *testing.T, path string, keys ...any) any {
	t.Helper()
	v := at(documents(t, path)[0], keys...)
	if v == nil {
		t.Fatalf("%s: no %v in it", path, keys)
	}
	return v
}

func strs(t *testing.T, v any) (list []string) {
	t.Helper()
	for _, s := range v.([]any) {
		list = append(list, s.(string))
	}
	return list
}

// flag is the value of a flag of serve among arguments.
func flag(args []string, name string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

const (
	deploymentFile = "deploy/kubernetes/deployment.yaml"
	runtimeFile    = "deploy/kserve/servingruntime.yaml"
)

// containers are those that manifests describe.
func containers(t *testing.T) map[string]object {
	return map[string]object{
		deploymentFile: find(t, deploymentFile, "spec", "template", "spec", "containers", 0).(object),
		runtimeFile:    find(t, runtimeFile, "spec", "containers", 0).(object),
	}
}

// probes are the paths that they ask.
func probes(t *testing.T) (paths []string) {
	for name, c := range containers(t) {
		for _, p := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
			path, ok := at(c, p, "httpGet", "path").(string)
			if port := at(c, p, "httpGet", "port"); !ok || port != 8080 && port != "http" {
				t.Errorf("%s: %s asks %q at %v, want a path at the port of REST", name, p, path, port)
			}
			paths = append(paths, path)
		}
	}
	return append(paths, find(t, deploymentFile, "spec", "template", "metadata", "annotations", "prometheus.io/path").(string),
		find(t, runtimeFile, "spec", "annotations", "prometheus.kserve.io/path").(string))
}

// What names refer to is there, and what has to be the same in two places is.
func TestManifestsAgree(t *testing.T) {
	same := func(what string, have, want any) {
		t.Helper()
		if !reflect.DeepEqual(have, want) {
			t.Errorf("%s: %v, want %v", what, have, want)
		}
	}
	im, files := dockerfile(t), "deploy/kubernetes/"
	deployment, name := documents(t, deploymentFile)[0], find(t, deploymentFile, "metadata", "name")
	pod := at(deployment, "spec", "template", "spec").(object)
	labels := at(deployment, "spec", "template", "metadata", "labels")
	same("the Deployment's selector", at(deployment, "spec", "selector", "matchLabels"), labels)
	same("how pods are spread", at(pod, "topologySpreadConstraints", 0, "labelSelector", "matchLabels"), labels)
	same("whose disruption is bounded", find(t, files+"disruption.yaml", "spec", "selector", "matchLabels"), labels)
	same("which claim", at(pod, "volumes", 0, "persistentVolumeClaim", "claimName"), find(t, files+"claim.yaml", "metadata", "name"))
	same("which configuration", at(pod, "volumes", 1, "configMap", "name"), find(t, files+"config.yaml", "metadata", "name"))
	for _, f := range []string{"autoscaler.yaml", "autoscaler-pending.yaml"} {
		same("what is scaled", find(t, files+f, "spec", "scaleTargetRef"), any(object{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}))
	}
	ports := object{}
	for _, p := range at(pod, "containers", 0, "ports").([]any) {
		ports[at(p, "name").(string)] = at(p, "containerPort")
	}
	same("ports", ports, object{"http": 8080, "grpc": 9000})
	same("EXPOSE", im.ports, []string{"8080", "9000"})
	for _, s := range documents(t, files+"service.yaml") {
		same("a Service's selector", at(s, "spec", "selector"), labels)
		for _, p := range at(s, "spec", "ports").([]any) {
			same("a Service's port", at(p, "port"), ports[at(p, "targetPort").(string)])
		}
	}
	same("the user", im.user, fmt.Sprint(at(pod, "securityContext", "runAsUser"), ":", at(pod, "securityContext", "runAsGroup")))
	same("the user", fmt.Sprint(find(t, runtimeFile, "spec", "containers", 0, "securityContext", "runAsUser"))+":65532", im.user)
	same("the version", find(t, files+"kustomization.yaml", "images", 0, "newTag"), spc.Version)
	same("the image", find(t, files+"kustomization.yaml", "images", 0, "name"), at(pod, "containers", 0, "image"))
	same("the image", find(t, runtimeFile, "spec", "containers", 0, "image"), fmt.Sprint(at(pod, "containers", 0, "image"), ":", spc.Version))
	same("the runtime of a cluster", find(t, "deploy/kserve/clusterservingruntime.yaml", "spec"), find(t, runtimeFile, "spec"))
	if _, err := host.ParseConfig([]byte(find(t, files+"config.yaml", "data", "config.yaml").(string)), host.Config{}); err != nil {
		t.Error(err)
	}
	probes(t)
}

// A pod has the time that requests need to end.
func TestPodsMayDrain(t *testing.T) {
	seconds := func(v any) time.Duration {
		if v == nil {
			return 0
		}
		return time.Duration(v.(int)) * time.Second
	}
	check := func(name string, args []string, stop, grace time.Duration) {
		drain, err := time.ParseDuration(flag(args, "drain"))
		if err != nil || stop <= 0 || stop+drain+2*time.Second > grace {
			t.Errorf("%s: preStop takes %v and --drain %v (%v), more than %v less 2 s", name, stop, drain, err, grace)
		}
	}
	all := containers(t)
	args := strs(t, all[deploymentFile]["args"])
	check(deploymentFile, args, seconds(at(all[deploymentFile], "lifecycle", "preStop", "sleep", "seconds")), seconds(find(t, deploymentFile, "spec", "template", "spec", "terminationGracePeriodSeconds")))
	formats := find(t, runtimeFile, "spec", "supportedModelFormats").([]any)
	for _, f := range []string{"deploy/kserve/inferenceservice.yaml", "deploy/kserve/inferenceservice-grpc.yaml"} {
		model := find(t, f, "spec", "predictor", "model")
		const byDefault = 30 * time.Second // Kubernetes's terminationGracePeriodSeconds
		check(f, strs(t, all[runtimeFile]["args"]), seconds(at(model, "lifecycle", "preStop", "sleep", "seconds")), byDefault)
		if at(model, "runtime") != find(t, runtimeFile, "metadata", "name") {
			t.Errorf("%s: runtime %v", f, at(model, "runtime"))
		}
		if !slices.ContainsFunc(formats, func(v any) bool {
			return at(v, "name") == at(model, "modelFormat", "name") && at(v, "version") == at(model, "modelFormat", "version") && at(v, "autoSelect") == true
		}) {
			t.Errorf("%s: the runtime does not take the format %v", f, at(model, "modelFormat"))
		}
		protocol := at(model, "protocolVersion")
		if !slices.Contains(find(t, runtimeFile, "spec", "protocolVersions").([]any), protocol) {
			t.Errorf("%s: the runtime does not speak %v", f, protocol)
		}
		if port := at(model, "ports", 0, "containerPort"); (protocol == "grpc-v2") != (port == 9000) {
			t.Errorf("%s: port %v for %v", f, port, protocol)
		}
	}
}

// Pods are what the restricted standard of pod security asks for, and cannot write to what they are made of.
func TestPodsAreRestricted(t *testing.T) {
	pod := find(t, deploymentFile, "spec", "template", "spec", "securityContext").(object)
	for name, c := range containers(t) {
		security := maps.Clone(c["securityContext"].(object))
		if name == deploymentFile { // where some of it is said of the pod
			for _, k := range []string{"runAsNonRoot", "seccompProfile"} {
				security[k] = pod[k]
			}
		}
		for k, want := range map[string]any{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
			"capabilities": object{"drop": []any{"ALL"}}, "seccompProfile": object{"type": "RuntimeDefault"},
		} {
			if !reflect.DeepEqual(security[k], want) {
				t.Errorf("%s: %s is %v, want %v", name, k, security[k], want)
			}
		}
		for _, what := range []string{"requests", "limits"} {
			if at(c, "resources", what, "cpu") == nil || at(c, "resources", what, "memory") == nil {
				t.Errorf("%s: %s lack cores or memory", name, what)
			}
		}
	}
}

// unknown lists the flags among arguments that the help of serve does not have.
func unknown(help string, args []string) (list []string) {
	for _, a := range args {
		if name, ok := strings.CutPrefix(a, "--"); ok {
			name, _, _ = strings.Cut(name, "=")
			if !regexp.MustCompile(`(?m)^\s+--` + regexp.QuoteMeta(name) + `\s`).MatchString(help) {
				list = append(list, name)
			}
		}
	}
	return list
}

func TestUnknown(t *testing.T) {
	const help = "  --models DIR   a folder\n  --http text    an address\n"
	if got := unknown(help, []string{"serve", "--models=/x", "--model=/x", "--htt", "--http"}); !slices.Equal(got, []string{"model", "htt"}) {
		t.Error(got)
	}
}
