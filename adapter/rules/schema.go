package rules

import (
	"encoding/json"

	"github.com/hybridlimit/hybridlimit/internal/arith"
)

// Schema returns a JSON Schema (draft 2020-12) of a rules file, for editors: they then offer
// the fields and mark what is wrong with one while it is written. It cannot say all that
// [Validate] checks, such as that a plan is there, and it is not for the documents of Envoy.
// The file schema.json beside this package has it as well.
func Schema() []byte {
	out, err := json.MarshalIndent(schema(), "", "  ")
	if err != nil {
		panic(err) // it is made of strings, numbers and maps
	}
	return append(out, '\n')
}

type object = map[string]any

// fieldSchemas describes each field of a rule.
var fieldSchemas = object{
	"algorithm": object{"enum": algorithmNames, "description": "how units are counted; another one counts anew"},
	"limit":     object{"type": "integer", "minimum": 0, "maximum": int64(arith.MaxUnits), "description": "units per period; of a bucket, what it gets back or leaks in that time"},
	"per":       object{"type": "string", "pattern": `^(([0-9]+(\.[0-9]*)?(ns|us|µs|μs|ms|s|m|h))+|day|week|month)$`, "description": "the period, such as 1s, 1m or 24h; of a calendar day, week or month"},
	"burst":     object{"type": "integer", "minimum": 1, "maximum": int64(arith.MaxUnits), "description": "of a bucket: how many units it holds; default: the limit"},
	"buckets":   object{"type": "integer", "minimum": 1, "maximum": 1000, "description": "of a sliding window: in how many parts it is counted; default 10"},
	"zone":      object{"type": "string", "minLength": 1, "description": "of a calendar: the time zone in which a period begins, such as Europe/Berlin; default UTC"},
	"first_day": object{"type": "integer", "minimum": 1, "maximum": 31, "description": "of a calendar: the day of the month or of the week (1 is Monday) on which a period begins; default 1"},
	"limits":    object{"type": "string", "minLength": 3, "description": "several limits in one line, such as 10/s, 500/m, 10000/day; instead of algorithm, limit and per"},
	"exact":     object{"type": "boolean", "description": "let Redis decide, unless it is known to refuse: as exact as one process, for a round trip"},
	"dry_run":   object{"type": "boolean", "description": "refuse nothing, and count what would be refused"},
	"unlimited": object{"type": "boolean", "description": "nothing limits this"},
	"blocked":   object{"type": "boolean", "description": "refuse everything"},
	"keys":      object{"enum": []string{"addresses"}, "description": "the keys of this rule are addresses: overrides with a cidr are about them"},
}

func schema() object {
	name := object{"pattern": `^[ -?A-~]+$`, "maxLength": 256}
	numbers := object{"type": "object", "additionalProperties": false, "properties": chosen(numberFields)}
	changes := object{"type": "object", "propertyNames": name, "additionalProperties": object{"$ref": "#/$defs/numbers"}}
	text := object{"type": []string{"string", "number"}, "minLength": 1}
	cidr := object{"type": "string", "pattern": "^[0-9A-Fa-f.:]+/[0-9]+$"}
	needs := func(names ...string) (out []any) {
		for _, name := range names {
			out = append(out, object{"required": []string{name}})
		}
		return out
	}
	return object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "hybridlimit rules",
		"type":    "object", "additionalProperties": false, "required": []string{"rules"},
		"properties": object{
			"rules": object{
				"type": "object", "minProperties": 1, "propertyNames": name,
				"additionalProperties": object{
					"type": "object", "additionalProperties": false, "properties": chosen(ruleFields),
					"oneOf": []any{object{"required": []string{"algorithm", "limit", "per"}}, object{"required": []string{"limits"}}},
				},
			},
			"plans": object{
				"type": "object", "propertyNames": name,
				"additionalProperties": object{"oneOf": []any{changes, object{"type": "null"}}},
			},
			"overrides": object{
				"type": "array", "items": object{
					"type": "object", "additionalProperties": false,
					"properties": object{
						"key": text, "prefix": text, "cidr": object{"oneOf": []any{cidr, object{"type": "array", "minItems": 1, "items": cidr}}},
						"route": object{"type": "string", "pattern": "/"}, "plan": text, "unlimited": object{"type": "boolean"}, "blocked": object{"type": "boolean"}, "rules": changes,
					},
					"oneOf": needs(subjectFields...), "anyOf": needs("plan", "unlimited", "blocked", "rules"),
				},
			},
		},
		"$defs": object{"numbers": numbers},
	}
}

// chosen returns the descriptions of these fields.
func chosen(names []string) object {
	out := object{}
	for _, name := range names {
		out[name] = fieldSchemas[name]
	}
	return out
}
