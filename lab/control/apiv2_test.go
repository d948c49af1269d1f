package main

import (
	"context"
	"net/url"
	"slices"
	"testing"

	"golang.org/x/oauth2/clientcredentials"
	tsapi "tailscale.com/client/tailscale/v2"
)

// apiClient is the client that the Kubernetes operator uses, set up as it does.
func apiClient(t *testing.T, s *testServer, secret string) *tsapi.Client {
	t.Helper()
	base, err := url.Parse(s.url())
	if err != nil {
		t.Fatal(err)
	}
	oauth := clientcredentials.Config{ClientID: "lab", ClientSecret: secret, TokenURL: s.url() + "/api/v2/oauth/token"}
	return &tsapi.Client{BaseURL: base, HTTP: oauth.Client(context.Background()), Tailnet: "-"}
}

func TestTheOperatorsCallsOfTheAPI(t *testing.T) {
	s := startServer(t)
	client, ctx := apiClient(t, s, "lab-secret"), context.Background()
	var req tsapi.CreateKeyRequest
	req.Capabilities.Devices.Create.Preauthorized = true
	req.Capabilities.Devices.Create.Tags = []string{"tag:k8s"}
	k, err := client.Keys().CreateAuthKey(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	n := joinWith(t, s, "proxy", k.Key)
	device, err := client.Devices().Get(ctx, n.ID)
	if err != nil || device.Name != "proxy.tail1234.ts.net" || !slices.Equal(device.Tags, []string{"tag:k8s"}) || device.Addresses[0] != n.Addresses[0].String() {
		t.Fatalf("%v: %+v", err, device)
	}
	if devices, err := client.Devices().List(ctx); err != nil || len(devices) != 1 || devices[0].NodeID != n.ID {
		t.Errorf("%v: %+v", err, devices)
	}
	if got, err := client.Keys().Get(ctx, k.ID); err != nil || got.Key != "" || !got.Invalid {
		t.Errorf("the used-up key: %v: %+v", err, got)
	}
	if err := client.Devices().Delete(ctx, n.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Devices().Get(ctx, n.ID); !tsapi.IsNotFound(err) {
		t.Errorf("a deleted device: %v", err)
	}
	if err := client.Devices().Delete(ctx, n.ID); !tsapi.IsNotFound(err) {
		t.Errorf("deleted twice: %v", err)
	}
	if err := client.Devices().Delete(ctx, "proxy"); !tsapi.IsNotFound(err) {
		t.Errorf("a name is no id: %v", err)
	}
}

func TestTheAPIRefusesWithTheHostedServicesTexts(t *testing.T) {
	s := startServer(t)
	client, ctx := apiClient(t, s, "lab-secret"), context.Background()
	var req tsapi.CreateKeyRequest
	if _, err := client.Keys().CreateAuthKey(ctx, req); err == nil {
		t.Error("a key without tags was made for an OAuth client")
	}
	req.Capabilities.Devices.Create.Tags = []string{"tag:nowhere"}
	if _, err := client.Keys().CreateAuthKey(ctx, req); err == nil || err.Error() != "requested tags [tag:nowhere] are invalid or not permitted (400)" {
		t.Errorf("got %v", err)
	}
	if _, err := apiClient(t, s, "wrong").Devices().List(ctx); err == nil {
		t.Error("a wrong secret was taken")
	}
}

func TestAnAPITokenOutlivesARestart(t *testing.T) {
	s := startServer(t)
	client, ctx := apiClient(t, s, "lab-secret"), context.Background()
	if _, err := client.Devices().List(ctx); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.start()
	if _, err := client.Devices().List(ctx); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}
