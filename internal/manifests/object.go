package manifests

import (
	"errors"

	"go.yaml.in/yaml/v3"

	"picot.dev/picot/gateway/static"
	"picot.dev/picot/internal/desired"
	"picot.dev/picot/internal/ovnkube"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// object is one object of a file, right in itself. Of the values one is set,
// by its kind.
type object struct {
	ref   desired.Ref
	pos   Position
	index int        // among the file's objects
	node  *yaml.Node // for the lines of fields; nil: only pos is known

	network  *desired.Network
	srv6Node *desired.Node
	endpoint *desired.Endpoint
	fdb      *desired.FDBEntry
	neighbor *desired.Neighbor
	ovnNode  *static.Node
	uplink   *static.Uplink
}

// line is where field stands.
func (o *object) line(field string) int { return max(lineOf(o.node, field), o.pos.Line) }

// kind is how one kind is read.
type kind struct {
	namespaced bool
	foreign    bool // not of our API group: read for what the gateway needs of it
	parse      func(raw []byte, ref desired.Ref, o *object) []desired.Problem
}

func kinds() map[string]kind {
	return map[string]kind{
		v1alpha1.KindNetwork:         {parse: parseNetwork},
		v1alpha1.KindNetworkEndpoint: {parse: parseEndpoint, namespaced: true},
		v1alpha1.KindSRv6Node:        {parse: parseNode},
		v1alpha1.KindFDBEntry:        {parse: parseFDB},
		v1alpha1.KindNeighbor:        {parse: parseNeighbor},
		ovnkube.KindNode:             {parse: parseOVNNode, foreign: true},
		ovnkube.KindUplinkState:      {parse: parseUplink, foreign: true},
	}
}

func parseNetwork(raw []byte, ref desired.Ref, o *object) []desired.Problem {
	var in v1alpha1.Network
	if p := strict(raw, ref, &in); len(p) > 0 {
		return p
	}
	v, p := desired.ParseNetwork(&in)
	o.network = &v
	return p
}

func parseEndpoint(raw []byte, ref desired.Ref, o *object) []desired.Problem {
	var in v1alpha1.NetworkEndpoint
	if p := strict(raw, ref, &in); len(p) > 0 {
		return p
	}
	in.Namespace = ref.Namespace
	v, p := desired.ParseEndpoint(&in)
	o.endpoint = &v
	return p
}

func parseNode(raw []byte, ref desired.Ref, o *object) []desired.Problem {
	var in v1alpha1.SRv6Node
	if p := strict(raw, ref, &in); len(p) > 0 {
		return p
	}
	v, p := desired.ParseNode(&in)
	o.srv6Node = &v
	return p
}

// A binding that names no owner binds nothing. The API takes it; in a manifest,
// where nobody will complete it, that is a mistake.
const noOwner = "the object binds nothing"

func parseFDB(raw []byte, ref desired.Ref, o *object) []desired.Problem {
	var in v1alpha1.FDBEntry
	if p := strict(raw, ref, &in); len(p) > 0 {
		return p
	}
	v, ok, p := desired.ParseFDB(&in)
	if !ok && len(p) == 0 {
		p = []desired.Problem{{Object: ref, Field: "status.managingNode", Reason: noOwner, Mend: "name the node that owns it", Is: desired.ErrInvalid}}
	}
	o.fdb = &v
	return p
}

func parseNeighbor(raw []byte, ref desired.Ref, o *object) []desired.Problem {
	var in v1alpha1.Neighbor
	if p := strict(raw, ref, &in); len(p) > 0 {
		return p
	}
	v, ok, p := desired.ParseNeighbor(&in)
	if !ok && len(p) == 0 {
		p = []desired.Problem{{Object: ref, Field: "status", Reason: noOwner, Mend: "give status.mac and status.managingNode", Is: desired.ErrInvalid}}
	}
	o.neighbor = &v
	return p
}

func parseOVNNode(raw []byte, ref desired.Ref, o *object) []desired.Problem {
	v, err := ovnkube.ParseNode(raw)
	if err == nil {
		err = ovnkube.CheckNode(v)
	}
	o.ovnNode = &v
	return foreignProblem(ref, err)
}

func parseUplink(raw []byte, ref desired.Ref, o *object) []desired.Problem {
	v, err := ovnkube.ParseUplink(raw)
	o.uplink = &v
	return foreignProblem(ref, err)
}

// foreignProblem says which field of an object that is not ours cannot be taken.
func foreignProblem(ref desired.Ref, err error) []desired.Problem {
	if err == nil {
		return nil
	}
	p := desired.Problem{Object: ref, Reason: err.Error(), Mend: "write it as the cluster has it", Is: desired.ErrInvalid}
	var f *ovnkube.FieldError
	if errors.As(err, &f) {
		p.Field, p.Reason = f.Field, f.Err.Error()
	}
	return []desired.Problem{p}
}

// readAs reports whether objects of this kind are read in this apiVersion.
func (k kind) readAs(kind, apiVersion string) bool {
	switch {
	case !k.foreign:
		return apiVersion == v1alpha1.APIVersion
	case kind == ovnkube.KindNode:
		return apiVersion == ovnkube.NodeAPI
	}
	return ovnkube.IsUplinkAPI(apiVersion)
}

// api is the apiVersion to write.
func (k kind) api(kind string) string {
	switch {
	case !k.foreign:
		return v1alpha1.APIVersion
	case kind == ovnkube.KindNode:
		return ovnkube.NodeAPI
	}
	return ovnkube.UplinkGroup + "/VERSION"
}
