package server

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

const rateLimitService = "envoy.service.ratelimit.v3.RateLimitService"

// Tools such as grpcurl learn from the server what it serves.
func TestReflection(t *testing.T) {
	n := begin(t, "", nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(n.cc).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if !slices.Contains(names, rateLimitService) || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("%q", names)
	}
	// The stream is open, and does not keep the server from its end.
	n.redis.Close()
	n.stopped = true
	if err := n.server.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); err == nil || ctx.Err() != nil {
		t.Errorf("the stream goes on: %v", err)
	}
	n.cc.Close()
}

// counted is a listener that counts its connections.
type counted struct {
	net.Listener
	n atomic.Int64
}

// Accept returns the next connection.
func (c *counted) Accept() (net.Conn, error) {
	c.n.Add(1)
	return c.Listener.Accept()
}

// Connections of gRPC end at an age, between calls, so that clients find servers that are new.
func TestConnectionsOfGRPCEnd(t *testing.T) {
	aging, lasting := &counted{Listener: loopback(t)}, &counted{Listener: loopback(t)}
	a := begin(t, "", func(o *Options) { o.GRPC, o.GRPCMaxAge = aging, 20*time.Millisecond })
	b := begin(t, "", func(o *Options) { o.GRPC = lasting })
	eventually(t, "there is a third connection", func() bool {
		a.ask("alice") // an error fails the test
		b.ask("alice")
		return aging.n.Load() > 3 // one more is waited for
	})
	if n := lasting.n.Load() - 1; n != 1 {
		t.Errorf("%d connections to a server that lets them last", n)
	}
}
