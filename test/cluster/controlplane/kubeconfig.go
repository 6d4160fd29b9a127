package controlplane

import (
	"encoding/base64"
	"fmt"
)

// kubeconfig returns a kubeconfig that needs no other file, so that it can be
// copied to a node.
func kubeconfig(server string, ca []byte, user certificate) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: test
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: test
  context:
    cluster: test
    user: test
current-context: test
`, server, b64(ca), b64(user.pem), b64(user.keyPEM))
}
