// Package deploytest tests the files of the directory above: the Dockerfile with the parser of
// BuildKit, compose.yaml with that of Compose, the configuration of Prometheus and Grafana, the
// unit of systemd and the release as data. What the containers run is run as processes, with a
// real Redis. No image is built, and Prometheus and Grafana are not run.
//
// It is a module of its own, and not in the workspace: nobody else is to have BuildKit among the
// dependencies. Run it with GOWORK=off.
package deploytest
