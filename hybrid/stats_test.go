package hybrid

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hybridlimit/hybridlimit/internal/inside"
)

// Each field of Stats is the figure of its name; those by source are added up.
func TestStatsAreFigures(t *testing.T) {
	f := inside.Figures{
		Allowed: inside.Outcomes{Synced: 1000, Local: 2000}, Denied: inside.Outcomes{Notice: 5000, Remote: 6000}, LastSuccess: time.Unix(7, 0),
		Rules: []inside.RuleFigures{{Name: "api", Allowed: inside.Outcomes{Degraded: 1}, Denied: inside.Outcomes{Unsynced: 2}, WouldRefuse: 3, Invalid: 4}},
	}
	v := reflect.ValueOf(&f).Elem()
	for i := range v.NumField() {
		switch field := v.Field(i); field.Kind() {
		case reflect.Int64:
			field.SetInt(int64(100 + i))
		case reflect.Uint64:
			field.SetUint(uint64(100 + i))
		}
	}
	s := statsOf(f)
	if s.Allowed != 3000 || s.Denied != 11000 || !s.LastSuccess.Equal(f.LastSuccess) || !reflect.DeepEqual(s.Rules, []RuleStats{{"api", 1, 2, 3, 4}}) {
		t.Errorf("%+v", s)
	}
	is := reflect.ValueOf(s)
	for field := range is.Type().Fields() {
		if name := field.Name; is.FieldByName(name).CanInt() && name != "Allowed" && name != "Denied" {
			want := v.FieldByName(name)
			if got := is.FieldByName(name).Int(); want.CanInt() && got != want.Int() || want.CanUint() && got != int64(want.Uint()) {
				t.Errorf("%s is %d, want %v", name, got, want)
			}
		}
	}
}

// Who sees a field move finds in docs/operations.md what to do.
func TestStatsAreInOperations(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n### Stats\n")
	table, _, _ = strings.Cut(table, "\n### ")
	for field := range reflect.TypeFor[Stats]().Fields() {
		if !strings.Contains(table, "`"+field.Name+"`") {
			t.Errorf("%s has no row", field.Name)
		}
	}
}
