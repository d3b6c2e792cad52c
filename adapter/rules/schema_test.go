package rules

import (
	"flag"
	"os"
	"slices"
	"testing"
)

var update = flag.Bool("update", false, "write schema.json anew")

// The schema that editors use is that of the fields that are read.
func TestSchema(t *testing.T) {
	if *update {
		if err := os.WriteFile("schema.json", Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != string(Schema()) {
		t.Error("schema.json is not what Schema returns: go test -run TestSchema -update .")
	}
	properties := schema()["properties"].(object)
	for _, name := range topFields {
		if properties[name] == nil {
			t.Errorf("%s is not in the schema", name)
		}
	}
	items := properties["overrides"].(object)["items"].(object)["properties"].(object)
	if len(items) != len(overrideFields) || len(properties) != len(topFields) || len(fieldSchemas) != len(ruleFields) {
		t.Error("the schema has other fields than the decoder")
	}
	for _, name := range overrideFields {
		if items[name] == nil {
			t.Errorf("%s of an override is not in the schema", name)
		}
	}
	if !slices.ContainsFunc(ruleFields, func(name string) bool { return fieldSchemas[name] != nil }) {
		t.Error("the fields of a rule are not in the schema")
	}
}
