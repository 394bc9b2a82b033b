package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd starts etcd with its sockets in sockDir and returns its URL.
// quota is the size its database may have, in bytes; 0: etcd's default, 2 GiB.
func startEtcd(dataDir, sockDir string, fsync bool, quota int64) (*embed.Etcd, string, error) {
	client := url.URL{Scheme: "unix", Path: filepath.Join(sockDir, "client.sock")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(sockDir, "peer.sock")}

	cfg := embed.NewConfig()
	cfg.Name = "lab"
	cfg.Dir = dataDir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = !fsync
	cfg.QuotaBackendBytes = quota
	cfg.WatchProgressNotifyInterval = 5 * time.Second // kube-apiserver's watch cache relies on these
	cfg.LogLevel = "fatal"                            // each stop logs errors that mean nothing
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, client.String(), nil
	case err = <-etcd.Err():
	case <-time.After(startTimeout):
		err = fmt.Errorf("not ready after %s", startTimeout)
	}
	etcd.Close()
	return nil, "", fmt.Errorf("etcd: %w", err)
}

// maintain does one piece of an etcd operator's work on a running lab:
//
//	apiserver etcd --endpoint URL status|compact|defrag|disarm
func maintain(args []string) error {
	fs := flag.NewFlagSet("etcd", flag.ExitOnError)
	endpoint := fs.String("endpoint", "", "`URL` of etcd, as the line READY says (required)")
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: apiserver etcd --endpoint URL status|compact|defrag|disarm")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *endpoint == "" || fs.NArg() != 1 {
		fs.Usage()
		return errors.New("want --endpoint and one of status, compact, defrag, disarm")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, Context: ctx, DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Status(ctx, *endpoint)
	if err != nil {
		return err
	}
	switch what := fs.Arg(0); what {
	case "status":
		alarms, err := c.AlarmList(ctx)
		if err != nil {
			return err
		}
		full := false
		for _, a := range alarms.Alarms {
			full = full || a.Alarm == etcdserverpb.AlarmType_NOSPACE
		}
		fmt.Printf("revision=%d size=%d inUse=%d nospace=%t\n", s.Header.Revision, s.DbSize, s.DbSizeInUse, full)
		return nil
	case "compact": // everything up to now
		_, err = c.Compact(ctx, s.Header.Revision, clientv3.WithCompactPhysical())
	case "defrag":
		_, err = c.Defragment(ctx, *endpoint)
	case "disarm":
		_, err = c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	default:
		return fmt.Errorf("%q is none of status, compact, defrag, disarm", what)
	}
	return err
}
