"""More rules of the kinds, each from `pkg/apis/*/validation` of Kubernetes 1.36 and seen on a real server.

`tests/contract/kubernetes_recorded` has the requests and the real server's answers.
"""
