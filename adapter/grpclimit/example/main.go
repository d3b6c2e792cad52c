// Command example limits a gRPC server by the address of its callers, and a client by
// what the server says: go run ./adapter/grpclimit/example
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/hybridlimit/hybridlimit/adapter/grpclimit"
	"github.com/hybridlimit/hybridlimit/hybrid"
	"github.com/hybridlimit/hybridlimit/limit"
)

var (
	perPeer  = limit.Must(limit.TokenBucket("per peer", 1, time.Hour, 3))           // 3 at once, then 1 an hour
	upstream = limit.Must(limit.TokenBucket("upstream", 1, 20*time.Millisecond, 1)) // one every 20 ms
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	lim, err := hybrid.New(nil, hybrid.Options{}) // this process alone; a Redis client shares the limits
	if err != nil {
		return err
	}
	defer lim.Close()

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server, err := newServer(limit.WithContext(lim))
	if err != nil {
		return err
	}
	go server.Serve(lis)
	defer server.Stop()

	// The client waits for its turn, and does not call when the server has asked for a pause.
	wait, err := grpclimit.UnaryClientInterceptor(limit.WithContext(lim), upstream, grpclimit.ByTarget(),
		grpclimit.Wait(), grpclimit.FollowRetryInfo(time.Hour))
	if err != nil {
		return err
	}
	cc, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(wait))
	if err != nil {
		return err
	}
	defer cc.Close()
	for i := range 5 {
		fmt.Fprintln(out, "call", i, call(cc))
	}
	return nil
}

// newServer returns a server whose unary calls and streams share a limit.
func newServer(lim limit.ContextLimiter) (*grpc.Server, error) {
	unary, err := grpclimit.UnaryServerInterceptor(lim, perPeer, grpclimit.ByPeer())
	if err != nil {
		return nil, err
	}
	stream, err := grpclimit.StreamServerInterceptor(lim, perPeer, grpclimit.ByPeer())
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(unary), grpc.ChainStreamInterceptor(stream))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server, nil
}

// call makes a call, and says how it ended.
func call(cc *grpc.ClientConn) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reply, err := grpc_health_v1.NewHealthClient(cc).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		return reply.GetStatus().String()
	}
	who := "by the server"
	if errors.As(err, new(*grpclimit.RefusedError)) {
		who = "by the client, not sent"
	}
	s := status.Convert(err)
	again := "never"
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			again = fmt.Sprint("in ", info.GetRetryDelay().AsDuration().Round(time.Hour))
		}
	}
	return fmt.Sprintf("refused %s: %s, again %s", who, s.Message(), again)
}
