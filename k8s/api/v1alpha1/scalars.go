package v1alpha1

// MaxID is the largest network ID and the largest segment: both travel in
// 24 bits of a SID.
const MaxID = 1<<24 - 1

// MACAddress is a unicast Ethernet address in its one canonical text form: six
// pairs of lower-case hex digits joined by colons, such as 02:00:00:00:00:0a.
//
// +kubebuilder:validation:MaxLength=17
// +kubebuilder:validation:Pattern=`^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$`
// +kubebuilder:validation:XValidation:rule="self != '00:00:00:00:00:00'",message="the zero address names nobody"
type MACAddress string

// IPAddress is an IPv4 or IPv6 address without a zone. An IPv4 address is
// written as IPv4, not IPv4-mapped.
//
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self)",message="want an IPv4 or IPv6 address, without zone, not IPv4-mapped"
type IPAddress string

// IPv6Address is an IPv6 address without a zone.
//
// +kubebuilder:validation:MaxLength=39
// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 6",message="want an IPv6 address, without zone, not IPv4-mapped"
type IPv6Address string

// Prefix is an IPv4 or IPv6 prefix in CIDR form whose host bits are zero.
//
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="want a prefix such as 10.0.0.0/24 or fd00::/64, host bits zero"
type Prefix string

// NetworkName is the name of a Network: a DNS label, so that it fits into a
// binding's name and into a label's value.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type NetworkName string

// Segment is the policy identity of an endpoint within its network; 0 is the
// segment of an endpoint that names none.
//
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=16777215
type Segment int32

// PortSecurity says which source addresses a port's frames may carry. In YAML
// the value "off" needs its quotes, else it is read as a boolean.
//
// +kubebuilder:validation:Enum="off";"mac";"mac+ip"
type PortSecurity string

const (
	// PortSecurityOff lets every unicast source through; learning may add
	// addresses to the port.
	PortSecurityOff PortSecurity = "off"
	// PortSecurityMAC lets only the endpoint's MAC through.
	PortSecurityMAC PortSecurity = "mac"
	// PortSecurityMACIP lets only the endpoint's MAC with the endpoint's
	// addresses through, in the IP header and inside ARP and NDP alike.
	PortSecurityMACIP PortSecurity = "mac+ip"
)

// Source says how a binding came to be. It goes from learned to static when an
// endpoint claims the key, and never back.
//
// +kubebuilder:validation:Enum=learned;static
// +kubebuilder:validation:XValidation:rule="self == oldSelf || (oldSelf == 'learned' && self == 'static')",message="source goes only from learned to static"
type Source string

const (
	// SourceLearned is a binding seen in traffic; it moves and expires.
	SourceLearned Source = "learned"
	// SourceStatic is a binding that an endpoint or an operator declared;
	// learning never touches it.
	SourceStatic Source = "static"
)

// EndpointReference names a NetworkEndpoint, one life of it.
type EndpointReference struct {
	// Namespace of the NetworkEndpoint.
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the NetworkEndpoint.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the NetworkEndpoint, which tells a re-created one from its
	// predecessor. Empty in manifests.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	UID string `json:"uid,omitempty"`
}
