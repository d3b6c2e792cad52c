package resp

import (
	"fmt"
	"strings"
)

// reply is answers that were not sent yet. The zero value is empty.
type reply struct {
	out []byte
}

// oneLine keeps a text from ending the line that it stands in.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

func (r *reply) problem(text string) { r.out = fmt.Appendf(r.out, "-%s\r\n", oneLine.Replace(text)) }
func (r *reply) simple(text string)  { r.out = fmt.Appendf(r.out, "+%s\r\n", oneLine.Replace(text)) }
func (r *reply) integer(n int64)     { r.out = fmt.Appendf(r.out, ":%d\r\n", n) }
func (r *reply) array(n int)         { r.out = fmt.Appendf(r.out, "*%d\r\n", n) }

func (r *reply) bulk(text string) {
	r.out = fmt.Appendf(r.out, "$%d\r\n", len(text))
	r.out = append(append(r.out, text...), "\r\n"...)
}
