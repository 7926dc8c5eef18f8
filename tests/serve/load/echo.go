package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"google.golang.org/grpc"

	"spc/serve/oip/oippb"
	"spc/serve/rpc"
)

// asEcho is set in the environment of a process that is an echo.
const asEcho = "SPC_LOAD_ECHO"

// EchoIfAsked does not return where the process was started as an echo. Whatever calls Overhead begins with it.
func EchoIfAsked() {
	if os.Getenv(asEcho) == "" {
		return
	}
	if err := serveEcho(); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// echo answers with the bytes that it is sent, as an output y.
type echo struct {
	oippb.UnimplementedGRPCInferenceServiceServer
}

func (echo) ModelInfer(_ context.Context, q *oippb.ModelInferRequest) (*oippb.ModelInferResponse, error) {
	in := q.Inputs[0]
	return &oippb.ModelInferResponse{
		ModelName: q.ModelName, ModelVersion: "1", RawOutputContents: q.RawInputContents,
		Outputs: []*oippb.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: in.Datatype, Shape: in.Shape}},
	}, nil
}

// serveEcho serves until standard input ends, with the transport of the server that is measured and grpc's own codec. Its address is the line that it prints.
func serveEcho() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := grpc.NewServer(rpc.Transport(256<<20, 10*time.Second, 2*time.Minute)...)
	oippb.RegisterGRPCInferenceServiceServer(g, echo{})
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		g.Stop()
	}()
	return g.Serve(l)
}

// startEcho starts this program as an echo.
func startEcho(ctx context.Context) (address string, stop func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	c := exec.CommandContext(ctx, program)
	c.Env, c.Stderr = append(os.Environ(), asEcho+"=1"), os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := c.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		in.Close()
		c.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the echo: %w", err)
	}
	return strings.TrimSpace(line), stop, nil
}
