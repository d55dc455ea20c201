package sched

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// member is the i-th pod of a gang of n, with one GPU.
func member(gang string, i, n int) Pod {
	p := trainer("b/train")
	p.Key, p.Gang, p.GangSize = fmt.Sprintf("%s-%d", gang, i), gang, n
	return p
}

// gpus is what is free of a cluster of one node with so many.
type gpus int

func (g *gpus) ask() Ask {
	return Ask{Now: noon, Need: 1, Room: func(string) int { return int(*g) }}
}

func TestTwoGangsNeverHoldHalfEach(t *testing.T) {
	free := gpus(12)
	g := NewGangs(clusterOf(1), time.Minute)
	for i := range 8 {
		g.See(member("a", i, 8), Waiting)
		g.See(member("b", i, 8), Waiting)
	}
	// The two come in turn, the worst order there is.
	for i := range 8 {
		if refusal := g.Admit(member("a", i, 8), free.ask()); refusal != nil {
			t.Fatalf("a-%d: %v", i, refusal)
		}
		free--
		if whole := g.Reserve(member("a", i, 8)); whole != (i == 7) {
			t.Errorf("a-%d: whole is %v", i, whole)
		}
		refusal := g.Admit(member("b", i, 8), free.ask())
		if want := GangWaits; refusal == nil || i < 7 && refusal.Reason != want || i == 7 && refusal.Reason != GangNoRoom {
			t.Fatalf("b-%d: %v", i, refusal)
		}
	}
	if turned := g.Turned(noon); len(turned) != 8 {
		t.Errorf("%v may be tried again, want all of b", turned)
	}
	for i := range 8 {
		g.See(member("a", i, 8), Placed)
		g.Lose(member("a", i, 8))
		free++
	}
	for i := range 8 {
		if refusal := g.Admit(member("b", i, 8), free.ask()); refusal != nil {
			t.Fatalf("b-%d after a: %v", i, refusal)
		}
		free--
		g.Reserve(member("b", i, 8))
	}
}

func TestGangThatFindsNoNodeGivesAllBack(t *testing.T) {
	free := gpus(12)
	g := NewGangs(clusterOf(1), time.Minute)
	for i := range 3 {
		g.See(member("a", i, 3), Waiting)
		g.See(member("b", i, 3), Waiting)
	}
	for i := range 2 {
		if refusal := g.Admit(member("a", i, 3), free.ask()); refusal != nil {
			t.Fatal(refusal)
		}
		g.Reserve(member("a", i, 3))
	}
	if refusal := g.Admit(member("b", 0, 3), free.ask()); refusal == nil || refusal.Reason != GangWaits {
		t.Fatalf("b: %v", refusal)
	}
	others := g.Abort(member("a", 2, 3))
	slices.Sort(others)
	if !slices.Equal(others, []string{"a-0", "a-1"}) {
		t.Errorf("given back: %v", others)
	}
	if need := g.Need(member("a", 0, 3)); need != 3 {
		t.Errorf("a needs %d nodes, want 3", need)
	}
	if refusal := g.Admit(member("b", 0, 3), free.ask()); refusal != nil {
		t.Errorf("b after a gave up: %v", refusal)
	}
}

func TestFloorIsHeldForABoundedTime(t *testing.T) {
	free := gpus(12)
	g := NewGangs(clusterOf(1), time.Minute)
	if refusal := g.Admit(member("a", 0, 3), free.ask()); refusal != nil {
		t.Fatal(refusal)
	}
	late := free.ask()
	late.Now = noon.Add(time.Minute)
	if refusal := g.Admit(member("b", 0, 3), late); refusal != nil {
		t.Errorf("after a minute: %v", refusal)
	}
}

func TestReplacedPodsNeedRoomForThemselvesOnly(t *testing.T) {
	free := gpus(1)
	g := NewGangs(clusterOf(1), time.Minute)
	for i := range 7 {
		g.See(member("a", i, 8), Placed)
	}
	g.Lose(member("a", 0, 8)) // ended well: it will not come again
	if refusal := g.Exists(member("a", 9, 8)); refusal != nil {
		t.Errorf("exists: %v", refusal)
	}
	if refusal := g.Admit(member("a", 9, 8), free.ask()); refusal != nil {
		t.Errorf("admit: %v", refusal)
	}
	if whole := g.Reserve(member("a", 9, 8)); !whole {
		t.Error("not whole")
	}
}

func TestGangWaitsUntilItsPodsExist(t *testing.T) {
	g := NewGangs(clusterOf(1), time.Minute)
	for i := range 3 {
		refusal := g.Exists(member("a", i, 3))
		if (refusal == nil) != (i == 2) {
			t.Errorf("pod %d: %v", i, refusal)
		}
		// The watch tells of each pod as well, before or after.
		if complete := g.See(member("a", i, 3), Waiting); complete != (i == 2) {
			t.Errorf("pod %d: complete is %v", i, complete)
		}
	}
	if complete := g.See(member("a", 0, 3), Waiting); complete {
		t.Error("complete a second time")
	}
	g.Lose(member("a", 0, 3))
	if complete := g.See(member("a", 7, 3), Waiting); !complete {
		t.Error("complete again with a new pod: not said")
	}
}

func TestGangThatNeverFitsIsTold(t *testing.T) {
	free := gpus(8)
	g := NewGangs(clusterOf(1), time.Minute)
	refusal := g.Admit(member("a", 0, 9), free.ask())
	want := "gang a is 9 pods of (1 nvidia.com/gpu) each, and all nodes together take 8 when they are empty: make the gang smaller or add nodes"
	if refusal == nil || refusal.Reason != GangTooLarge || refusal.Message != want {
		t.Errorf("refusal is %v", refusal)
	}
}

func TestGangOfClaimsIsTried(t *testing.T) {
	g := NewGangs(clusterOf(1), time.Minute)
	p := member("a", 0, 8)
	p.Wants, p.Claims = nil, true
	if refusal := g.Admit(p, Ask{Now: noon, Room: func(string) int { return 0 }}); refusal != nil {
		t.Errorf("refused: %v", refusal)
	}
}
