package extender

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/pailfs/pailfs/deploy/sched"
	"github.com/pailfs/pailfs/deploy/sched/kube"
)

// maxRequest bounds a request: the names of more nodes than Kubernetes supports, and a
// pod of 1.5 MiB, the most that the API server keeps.
const maxRequest = 32 << 20

// Handler answers kube-scheduler at /filter and /prioritize, and /healthz.
type Handler struct {
	cluster *sched.Cluster
	synced  func() bool
	mux     http.ServeMux
}

// Open returns a handler that knows the cluster behind client until ctx ends.
func Open(ctx context.Context, client kubernetes.Interface, config *rest.Config, log *slog.Logger) (*Handler, error) {
	h := New(sched.New(sched.Config{}))
	if err := kube.WatchReports(ctx, config, h.cluster, func() {}); err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes, pods := factory.Core().V1().Nodes().Informer(), factory.Core().V1().Pods().Informer()
	if err := pods.SetTransform(slim); err != nil {
		return nil, err
	}
	if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { h.cluster.SetNode(kube.Node(is.(*v1.Node))) },
		UpdateFunc: func(_, is any) { h.cluster.SetNode(kube.Node(is.(*v1.Node))) },
		DeleteFunc: func(was any) {
			if node, ok := kube.Last[*v1.Node](was); ok {
				h.cluster.RemoveNode(node.Name)
			}
		},
	}); err != nil {
		return nil, err
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { h.saw(is.(*v1.Pod)) },
		UpdateFunc: func(_, is any) { h.saw(is.(*v1.Pod)) },
		DeleteFunc: func(was any) {
			if pod, ok := kube.Last[*v1.Pod](was); ok {
				h.cluster.Drop(string(pod.UID))
			}
		},
	}); err != nil {
		return nil, err
	}
	h.synced = func() bool { return nodes.HasSynced() && pods.HasSynced() }
	factory.Start(ctx.Done())
	log.Info("extender answers", "filter", "/filter", "prioritize", "/prioritize")
	return h, nil
}

// New returns a handler over a cluster that somebody else keeps up to date.
func New(c *sched.Cluster) *Handler {
	h := &Handler{cluster: c, synced: func() bool { return true }}
	h.mux.HandleFunc("POST /filter", h.filter)
	h.mux.HandleFunc("POST /prioritize", h.prioritize)
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !h.synced() {
			http.Error(w, "nodes and pods have not been read yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n") // who asked has gone if it fails
	})
	return h
}

// ServeHTTP is [http.Handler]'s.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// slim leaves of a pod what says which dataset it holds where.
func slim(object any) (any, error) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		return object, nil
	}
	is := &v1.Pod{ObjectMeta: pod.ObjectMeta, Spec: v1.PodSpec{NodeName: pod.Spec.NodeName}, Status: v1.PodStatus{Phase: pod.Status.Phase}}
	is.ManagedFields = nil
	return is, nil
}

// saw takes what a pod holds. What a scheduler has decided and not written yet is not
// seen here, so two pods at once may be promised the same bytes.
func (h *Handler) saw(pod *v1.Pod) {
	p, ok, err := kube.Pod(pod)
	if !ok || err != nil {
		return
	}
	if pod.Spec.NodeName != "" && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
		h.cluster.Hold(p, pod.Spec.NodeName)
	} else {
		h.cluster.Drop(p.Key)
	}
}

// question reads a request; ok is false if it was answered with an error.
func (h *Handler) question(w http.ResponseWriter, r *http.Request) (q wire.ExtenderArgs, names []string, ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&q); err != nil || q.Pod == nil {
		http.Error(w, fmt.Sprintf("want the pod and the names of nodes that kube-scheduler sends: %v", err), http.StatusBadRequest)
		return q, nil, false
	}
	if !h.synced() {
		http.Error(w, "nodes and pods have not been read yet", http.StatusServiceUnavailable)
		return q, nil, false
	}
	if q.NodeNames == nil {
		http.Error(w, "the request names no nodes: set nodeCacheCapable: true for the extender in the scheduler's configuration", http.StatusBadRequest)
		return q, nil, false
	}
	return q, *q.NodeNames, true
}

// answer writes a reply.
func answer(w http.ResponseWriter, reply any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // who asked has gone if it fails
}

// filter says which of the nodes may run the pod, and why the others may not.
func (h *Handler) filter(w http.ResponseWriter, r *http.Request) {
	q, names, ok := h.question(w, r)
	if !ok {
		return
	}
	p, ours, err := kube.Pod(q.Pod)
	if !ours {
		answer(w, wire.ExtenderFilterResult{NodeNames: &names})
		return
	}
	now, refused := time.Now(), wire.FailedNodesMap{}
	fit := []string{}
	all := ""
	switch {
	case err != nil:
		all = err.Error()
	case p.Gang != "":
		all = fmt.Sprintf("annotation %s: an extender cannot place pods together: set schedulerName to pailfs-scheduler", sched.AnnotationGangSize)
	default:
		if _, refusal := h.cluster.Choose(p, sched.Ask{Now: now, Need: 1, Room: func(string) int { return 1 }}); refusal != nil {
			all = refusal.Message
		}
	}
	for _, name := range names {
		switch refusal := h.cluster.Check(p, name, now); {
		case all != "":
			refused[name] = all
		case refusal != nil:
			refused[name] = refusal.Message
		default:
			fit = append(fit, name)
		}
	}
	answer(w, wire.ExtenderFilterResult{NodeNames: &fit, FailedAndUnresolvableNodes: refused})
}

// prioritize ranks the nodes.
func (h *Handler) prioritize(w http.ResponseWriter, r *http.Request) {
	q, names, ok := h.question(w, r)
	if !ok {
		return
	}
	p, ours, err := kube.Pod(q.Pod)
	now := time.Now()
	list := make(wire.HostPriorityList, 0, len(names))
	for _, name := range names {
		score := 0.0
		if ours && err == nil {
			score = float64(h.cluster.Score(p, name, now)) * float64(wire.MaxExtenderPriority) / sched.MaxScore
		}
		list = append(list, wire.HostPriority{Host: name, Score: int64(math.Round(score))})
	}
	answer(w, list)
}
