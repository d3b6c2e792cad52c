package server

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
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
	ask := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
		res, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	var names []string
	list := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	for _, s := range list.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if !slices.Contains(names, rateLimitService) || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("%q", names)
	}
	file := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: rateLimitService}})
	found := false
	for _, text := range file.GetFileDescriptorResponse().GetFileDescriptorProto() {
		var fd descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(text, &fd); err != nil {
			t.Fatal(err)
		}
		for _, s := range fd.GetService() {
			found = found || fd.GetPackage()+"."+s.GetName() == rateLimitService && s.GetMethod()[0].GetName() == "ShouldRateLimit"
		}
	}
	if !found {
		t.Errorf("%v", file)
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
