package httptests

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"
)

// can returns what a ResponseWriter can do beyond the interface.
func can(w http.ResponseWriter) (list []string) {
	add := func(name string, ok bool) {
		if ok {
			list = append(list, name)
		}
	}
	_, ok := w.(http.Flusher)
	add("Flush", ok)
	_, ok = w.(http.Hijacker)
	add("Hijack", ok)
	_, ok = w.(http.Pusher)
	add("Push", ok)
	_, ok = w.(interface{ CloseNotify() <-chan bool })
	add("CloseNotify", ok)
	_, ok = w.(io.StringWriter)
	add("WriteString", ok)
	_, ok = w.(io.ReaderFrom)
	add("ReadFrom", ok)
	add("EnableFullDuplex", http.NewResponseController(w).EnableFullDuplex() == nil)
	return list
}

// routers returns a server for each router, with the middleware where its users put it. h is a
// handler of net/http there; gin has one of its own, too.
func routers(m middleware, h http.HandlerFunc) map[string]http.Handler {
	gin.SetMode(gin.ReleaseMode)
	mux := http.NewServeMux()
	mux.Handle("/", m(h))

	c := chi.NewRouter()
	c.Use(m, func(h http.Handler) http.Handler { // as chi's own middlewares do
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(chimiddleware.NewWrapResponseWriter(w, r.ProtoMajor), r)
		})
	})
	c.Get("/", h)

	e := echo.New()
	e.GET("/", echo.WrapHandler(h), echo.WrapMiddleware(m))

	inside, outside := gin.New(), gin.New()
	inside.GET("/", ginMiddleware(m), gin.WrapF(h))
	outside.GET("/", gin.WrapF(h))
	return map[string]http.Handler{"net/http": mux, "chi": c, "echo": e, "gin inside": inside, "gin outside": m(outside)}
}

// both runs f against a server of HTTP/1.1 and one of HTTP/2.
func both(t *testing.T, h http.Handler, f func(s *httptest.Server)) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = http2
		s.StartTLS()
		f(s)
		s.Close()
	}
}

// Fault 99: under RefundOn the writer can do all that it can without, in each router.
func TestWriterKeepsWhatItCan(t *testing.T) {
	protect, lim := perAddress()
	defer lim.Close()
	got := make(chan []string, 1)
	h := func(w http.ResponseWriter, _ *http.Request) {
		got <- can(w)
		w.WriteHeader(http.StatusInternalServerError)
	}
	plain := routers(func(h http.Handler) http.Handler { return h }, h)
	for name, limited := range routers(protect, h) {
		var without [][]string
		both(t, plain[name], func(s *httptest.Server) { read(t, s, "/"); without = append(without, <-got) })
		both(t, limited, func(s *httptest.Server) {
			proto, have, want := read(t, s, "/").Proto, <-got, without[0]
			without = without[1:]
			for _, what := range []string{"Flush", "Hijack", "Push", "CloseNotify", "WriteString", "ReadFrom", "EnableFullDuplex"} {
				always := what == "CloseNotify" || what == "WriteString" || what == "ReadFrom" // of any writer
				if is, was := slices.Contains(have, what), slices.Contains(want, what); is != was && !(is && always) {
					t.Errorf("%s, %s: %s is there: %t, without the middleware %t", name, proto, what, is, was)
				}
			}
		})
	}
}

// answer is what a client has read.
type answer struct {
	*http.Response
	body string
}

func read(t *testing.T, s *httptest.Server, path string) answer {
	t.Helper()
	resp, err := s.Client().Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp, string(body)}
}

// Fault 99: gin's Stream asks for CloseNotifier; it sends, and ends when the client goes.
func TestGinStreams(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	for _, inside := range []bool{false, true} {
		protect, lim := perAddress()
		ended := make(chan bool, 1)
		routes := func(to gin.IRoutes) {
			to.GET("/three", func(c *gin.Context) {
				n := 0
				c.Stream(func(w io.Writer) bool { n++; fmt.Fprint(w, n); return n < 3 })
			})
			to.GET("/endless", func(c *gin.Context) {
				ended <- c.Stream(func(w io.Writer) bool { fmt.Fprint(w, "x\n"); return true })
			})
		}
		engine := gin.New()
		var h http.Handler = engine
		if inside {
			routes(engine.Group("/", ginMiddleware(protect)))
		} else {
			routes(engine)
			h = protect(engine)
		}
		both(t, h, func(s *httptest.Server) {
			if a := read(t, s, "/three"); a.StatusCode != http.StatusOK || a.body != "123" {
				t.Errorf("inside %t, %s: %d %q", inside, a.Proto, a.StatusCode, a.body)
			}
			lim.Reset("127.0.0.1", rule)
			resp, err := s.Client().Get(s.URL + "/endless")
			if err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "x\n" {
				t.Errorf("inside %t: %q, %v", inside, line, err)
			}
			resp.Body.Close() // ends the connection, or the stream of HTTP/2
			if !<-ended {
				t.Errorf("inside %t, %s: the stream ended by itself", inside, resp.Proto)
			}
			lim.Reset("127.0.0.1", rule)
		})
		lim.Close()
	}
}

// Fault 99: fiber runs its handlers past the writer, so they stream as without.
func TestFiberStreams(t *testing.T) {
	protect, lim := perAddress()
	defer lim.Close()
	app := fiber.New()
	app.Get("/", adaptor.HTTPMiddleware(protect), func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) { fmt.Fprint(w, "first "); w.Flush(); fmt.Fprint(w, "second") })
	})
	resp, err := app.Test(httptest.NewRequest(http.MethodGet, "/", strings.NewReader("")), fiber.TestConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "first second" {
		t.Errorf("%q, %v", body, err)
	}
}
