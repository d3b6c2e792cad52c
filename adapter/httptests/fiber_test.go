package httptests

import (
	"net"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
)

// fiber has an adapter. It runs the handlers after the middleware, so that RefundOn is asked
// about 200 only: here requests that fail cost a unit.
func Example_fiber() {
	protect, lim := perAddress()
	defer lim.Close()
	app := fiber.New()
	limited := adaptor.HTTPMiddleware(protect)
	app.Get("/ok", limited, func(c fiber.Ctx) error { return c.SendString("hello") })
	app.Get("/fail", limited, func(c fiber.Ctx) error { return c.Status(http.StatusInternalServerError).SendString("sorry") })
	app.Get("/open", func(c fiber.Ctx) error { return c.SendString("hello") })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	try("http://" + listener.Addr().String())
	if err := app.Shutdown(); err != nil {
		panic(err)
	}
	<-ended
	// Output:
	// /fail 500 sorry "per address";r=1;t=3600
	// /ok 200 hello "per address";r=0;t=3600
	// /ok 429 refused by "per address", again in 3600 s "per address";r=0;t=3600
	// /ok 429 refused by "per address", again in 3600 s "per address";r=0;t=3600
	// /open 200 hello
}
