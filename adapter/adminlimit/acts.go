package adminlimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/hybridlimit/hybridlimit/internal/escape"
	"github.com/hybridlimit/hybridlimit/limit"
)

// mostBody bounds what is read of a form.
const mostBody = 64 << 10

// post answers a look-up or an act. Keys come in a form, so that they are in no log and no history.
func (p *Page) post(w http.ResponseWriter, r *http.Request, what string, isJSON bool) {
	say := func(status int, s shown) {
		switch {
		case !isJSON:
			p.show(w, r, status, s)
		case s.Look != nil:
			writeJSON(w, status, s.Look)
		case s.Wrong:
			writeJSON(w, status, map[string]string{"error": s.Said})
		default:
			writeJSON(w, status, map[string]string{"done": s.Said})
		}
	}
	wrong := func(status int, text string) { say(status, shown{Said: text, Wrong: true}) }
	if err := p.cross.Check(r); err != nil {
		wrong(http.StatusForbidden, "the request comes from another site")
		return
	}
	who, status, text := p.admit(w, r, what)
	if text != "" {
		wrong(status, text)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		wrong(http.StatusUnsupportedMediaType, "a form is wanted: application/x-www-form-urlencoded")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostBody)
	if err := r.ParseForm(); err != nil {
		wrong(http.StatusBadRequest, "the form cannot be read")
		return
	}
	key, err := keyOf(r.PostForm)
	if err != nil && r.PostForm.Get("do") != "reload" {
		wrong(http.StatusBadRequest, err.Error())
		return
	}
	name, plan := r.PostForm.Get("rule"), r.PostForm.Get("plan")
	if what == "act" {
		done, err := p.act(r.Context(), r.PostForm.Get("do"), name, plan, key, r.PostForm.Get("used"), who)
		if err != nil {
			wrong(http.StatusUnprocessableEntity, err.Error())
			return
		}
		say(http.StatusOK, shown{Said: done})
		return
	}
	l, err := p.lookUp(r.Context(), name, plan, key)
	if err != nil {
		wrong(http.StatusNotFound, err.Error())
		return
	}
	say(http.StatusOK, shown{Look: l})
}

// keyOf returns the key of a form: "key" has it as it is, and "exact" in quotes as in Go, since a
// browser changes bytes that are no text.
func keyOf(form url.Values) (string, error) {
	if exact := form.Get("exact"); exact != "" {
		key, err := strconv.Unquote(exact)
		if err != nil {
			return "", errors.New("the key is not in quotes as in Go")
		}
		return key, nil
	}
	if !form.Has("key") {
		return "", errors.New("the form has no key")
	}
	return form.Get("key"), nil
}

// keysHidden answers whoever asks for keys that are not shown.
const keysHidden = "keys are not shown here: see Options.HideKeys, or --admin-keys of hybridlimit serve"

// admit decides who may ask for what, before anything of a body is read. It returns why not.
func (p *Page) admit(w http.ResponseWriter, r *http.Request, what string) (who string, status int, text string) {
	act := what == "act"
	switch {
	case act && p.o.Authorise == nil:
		return "", http.StatusForbidden, "there are no acts here: set Options.Authorise, or --admin-password of hybridlimit serve"
	case !act && p.o.HideKeys:
		return "", http.StatusForbidden, keysHidden
	case act && !p.acts.pass(), !act && !p.lookups.pass(): // before a password is looked at, so that few can be tried
		w.Header().Set("Retry-After", "1")
		return "", http.StatusTooManyRequests, "too many at once: each asks Redis; try again in a second"
	case !act:
		return "", 0, ""
	}
	who, ok := p.o.Authorise(r)
	switch {
	case ok:
		return who, 0, ""
	case r.Header.Get("Authorization") == "": // a browser asks for a name and a password then
		w.Header().Set("WWW-Authenticate", `Basic realm="hybridlimit", charset="UTF-8"`)
		return "", http.StatusUnauthorized, "this needs a name and a password"
	}
	p.refused.Note(r.Context(), false, fmt.Errorf("%s from %s may not", escape.Quote(who), escape.Quote(r.RemoteAddr)))
	return "", http.StatusForbidden, "you may not do this"
}

// act changes something, and returns what was done.
func (p *Page) act(ctx context.Context, do, name, plan, key, used, who string) (done string, failed error) {
	attrs := []slog.Attr{slog.String("who", who), slog.String("act", do)}
	switch do {
	case "reset", "set":
		n := int64(0)
		if do == "set" {
			var err error
			if n, err = strconv.ParseInt(used, 10, 64); err != nil {
				return "", errors.New("the number of used units is not a number")
			}
		}
		if name == "" {
			return "", errors.New("an act needs the name of a rule")
		}
		choices, err := p.choices(name, plan, key)
		if err != nil {
			return "", err
		}
		if choices[0].rule == limit.Unlimited() {
			return "", errors.New("nothing limits this key")
		}
		key = choices[0].key
		failed = p.lim.Set(ctx, key, choices[0].rule, n)
		attrs = append(attrs, slog.String("rule", name), slog.String("key", escape.Quote(key)), slog.Int64("used", n))
		done = fmt.Sprintf("%s of %s: %s used now, for all nodes.", escape.Quote(key), escape.Quote(name), many(n, "unit is", "units are"))
	case "reload":
		if p.o.Rules == nil {
			return "", errors.New("there is no rules file")
		}
		failed, done = p.o.Rules.Reload(), "The rules file was read again."
	default:
		return "", errors.New("there is no such act: reset, set, reload")
	}
	if failed != nil {
		attrs = append(attrs, slog.String("err", failed.Error()))
	}
	p.keys.forget() // who has changed something sees it
	p.rows.forget()
	p.log(ctx, "adminlimit: act", attrs...)
	return done, failed
}

// log writes a line, to the default logger if there is no other.
func (p *Page) log(ctx context.Context, text string, attrs ...slog.Attr) {
	logger := p.o.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(ctx, slog.LevelInfo, text, attrs...)
}
