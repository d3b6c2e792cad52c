package httptests

import (
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
)

// ginMiddleware makes a middleware one of gin. A request that it does not pass on ends there.
func ginMiddleware(m middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		c.Request.Pattern = c.FullPath() // for ByRoute: gin itself does not say
		m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			c.Next()
			w.WriteHeader(c.Writer.Status()) // for RefundOn: gin's handlers write past w
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// gin needs the ten lines of ginMiddleware for some routes. For all of them protect(engine)
// is enough, since a gin.Engine is an http.Handler.
func Example_gin() {
	protect, lim := perAddress()
	defer lim.Close()
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	protected := engine.Group("/", ginMiddleware(protect))
	protected.GET("/ok", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	protected.GET("/fail", func(c *gin.Context) { c.String(http.StatusInternalServerError, "sorry") })
	engine.GET("/open", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	server := httptest.NewServer(engine)
	defer server.Close()
	try(server.URL)
	// Output:
	// /fail 500 sorry "per address";r=1;t=3600
	// /ok 200 hello "per address";r=1;t=3600
	// /ok 200 hello "per address";r=0;t=3600
	// /ok 429 refused by "per address", again in 3600 s "per address";r=0;t=3600
	// /open 200 hello
}
