package rules

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// watcher hears of changes to a file. It watches directories, not the file: editors and
// deployments replace files by renaming. On the way to a file there may be symbolic links, as
// in a volume of Kubernetes, where one link is replaced; each is watched in its directory.
type watcher struct {
	path   string
	notify *fsnotify.Watcher // nil: the system gives no notices
	err    error             // why
	events <-chan fsnotify.Event
	errors <-chan error

	names map[string]bool // what must change for the file to be another one
	dirs  map[string]bool // that are watched
}

// newWatcher watches for changes of the file at an absolute path.
func newWatcher(path string) *watcher {
	w := &watcher{path: path, dirs: map[string]bool{}}
	if w.notify, w.err = fsnotify.NewWatcher(); w.err != nil {
		return w
	}
	w.events, w.errors = w.notify.Events, w.notify.Errors
	w.renew()
	return w
}

// renew watches what is on the way to the file now.
func (w *watcher) renew() {
	if w.notify == nil {
		return
	}
	w.names = wayTo(w.path)
	dirs := map[string]bool{}
	for name := range w.names {
		dirs[filepath.Dir(name)] = true
	}
	for dir := range w.dirs {
		if !dirs[dir] {
			_ = w.notify.Remove(dir) // it may be gone already
		}
	}
	for dir := range dirs {
		// Once more is no harm, and needed for one that was deleted and made again.
		if err := w.notify.Add(dir); err != nil {
			delete(dirs, dir)
			w.err = err
		}
	}
	w.dirs = dirs
}

// concerns reports whether a change of that name may be one of the file. If a directory was
// renamed or deleted, there may be another one at its place.
func (w *watcher) concerns(name string) bool {
	name = filepath.Clean(name)
	return w.names[name] || w.dirs[name]
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// wayTo returns the symbolic links on the way to a file, and the file. If something of it is
// missing, the way ends there.
func wayTo(path string) map[string]bool {
	names := map[string]bool{}
	const maxLinks = 40 // as in Linux
	for range maxLinks {
		link, rest := firstLink(path)
		names[link] = true
		target, err := os.Readlink(link)
		if err != nil {
			break // the file itself, or what is missing
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, rest)
	}
	return names
}

// firstLink returns the first symbolic link in a path, and what follows it; the whole path if
// there is none, or its first part that is missing.
func firstLink(path string) (link, rest string) {
	at := filepath.VolumeName(path) + string(filepath.Separator)
	parts := strings.Split(strings.TrimPrefix(path, at), string(filepath.Separator))
	for i, part := range parts {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		if err != nil || info.Mode()&os.ModeSymlink != 0 {
			return at, filepath.Join(parts[i+1:]...)
		}
	}
	return path, ""
}
