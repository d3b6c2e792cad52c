package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/hybridlimit/hybridlimit/adapter/rules"
	"github.com/hybridlimit/hybridlimit/cmd/hybridlimit/internal/server/byname"
	"github.com/hybridlimit/hybridlimit/internal/arith"
	"github.com/hybridlimit/hybridlimit/limit"
)

// What follows an unknown field. The second is for a request of which the form is not known.
const (
	namedFields = "; the fields are rule, key, n, charge"
	allFields   = namedFields + "; or domain, descriptors, hitsAddend, and within descriptors entries (key, value), " +
		"limit (requestsPerUnit, unit, unitMultiplier), hitsAddend, isNegativeHits"
)

// named is a request by the name of a rule.
type named struct {
	rule, key string
	n         int64
	charge    bool // count n whatever is left, or give it back
}

// readNamed reads such a request. hint are the fields that there are, if that is what is wrong.
func readNamed(fields map[string]*structpb.Value) (q named, hint string, err error) {
	q.n = 1
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch v := fields[name].GetKind(); name {
		case "rule":
			q.rule, err = text(name, v)
		case "key":
			q.key, err = text(name, v)
		case "n":
			q.n, err = units(name, v, 0)
		case "charge":
			q.charge = true
			q.n, err = units(name, v, -arith.MaxUnits)
		default:
			return q, namedFields, fmt.Errorf(`unknown field "%s"`, name)
		}
		if err != nil {
			return q, "", err
		}
	}
	if q.charge && fields["n"] != nil {
		return q, "", errors.New("either n or charge can be given")
	}
	if fields["key"] == nil {
		return q, "", errors.New("key is missing: say whom to count for")
	}
	return q, "", nil
}

// text returns the value of a field that must be one.
func text(name string, v any) (string, error) {
	s, ok := v.(*structpb.Value_StringValue)
	if !ok {
		return "", errors.New(name + " must be a string")
	}
	return s.StringValue, nil
}

// units returns the value of a field that must be a number of units.
func units(name string, v any, least float64) (int64, error) {
	n, ok := v.(*structpb.Value_NumberValue)
	if !ok || n.NumberValue < least || n.NumberValue > arith.MaxUnits || n.NumberValue != math.Trunc(n.NumberValue) {
		return 0, fmt.Errorf("%s must be an integer from %.0f to %d", name, least, int64(arith.MaxUnits))
	}
	return int64(n.NumberValue), nil
}

// checkNamed answers a request by the name of a rule.
func checkNamed(w http.ResponseWriter, r *http.Request, service Service, fields map[string]*structpb.Value) {
	q, hint, err := readNamed(fields)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error(), hint)
		return
	}
	var res limit.Result
	if q.charge {
		res, err = service.Charge(q.rule, q.key, q.n)
	} else {
		res, err = service.Ask(r.Context(), q.rule, q.key, q.n)
	}
	switch {
	case answerUndecided(w, err):
	case errors.Is(err, byname.ErrNoRule):
		problem(w, http.StatusNotFound, "the rules file has no rule \""+q.rule+"\"")
	case errors.Is(err, byname.ErrNoKey), errors.Is(err, rules.ErrNoAddress):
		problem(w, http.StatusBadRequest, err.Error())
	case err != nil:
		problem(w, http.StatusInternalServerError, "")
	case q.charge:
		answerResult(w, http.StatusOK, res) // it has been done, whatever is left
	case res.Allowed:
		answerResult(w, http.StatusOK, res)
	default:
		answerResult(w, http.StatusTooManyRequests, res)
	}
}

func answerResult(w http.ResponseWriter, code int, res limit.Result) {
	body, err := json.Marshal(res)
	if err != nil {
		problem(w, http.StatusInternalServerError, "")
		return
	}
	if n, ok := res.RetryAfterSeconds(); ok && code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(n))
	}
	answer(w, code, "application/json", append(body, '\n'))
}
