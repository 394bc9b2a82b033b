package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
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
//	apiserver etcd --endpoint URL status|compact|defrag|disarm|load
func maintain(args []string) error {
	fs := flag.NewFlagSet("etcd", flag.ExitOnError)
	endpoint := fs.String("endpoint", "", "`URL` of etcd, as the line READY says (required)")
	fs.Usage = func() {
		fmt.Fprintln(fs.Output(), "usage: apiserver etcd --endpoint URL status|compact|defrag|disarm|load")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *endpoint == "" || fs.NArg() != 1 {
		fs.Usage()
		return errors.New("want --endpoint and one of status, compact, defrag, disarm, load")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
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
	case "load":
		err = load(ctx, c, os.Stdin)
	default:
		return fmt.Errorf("%q is none of status, compact, defrag, disarm, load", what)
	}
	return err
}

// load stores what the lines of in say, a key and after a tab its value each:
// many objects in a fraction of the time the API server would take, without its
// checks.
func load(ctx context.Context, c *clientv3.Client, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	var ops []clientv3.Op
	flush := func() error {
		_, err := c.Txn(ctx).Then(ops...).Commit()
		ops = ops[:0]
		return err
	}
	for lines.Scan() {
		key, value, ok := strings.Cut(lines.Text(), "\t")
		if !ok {
			return fmt.Errorf("line %q: want a key, a tab and a value", lines.Text())
		}
		ops = append(ops, clientv3.OpPut(key, value))
		if len(ops) == maxOps {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(ops) > 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

// maxOps is how many puts etcd takes in one transaction by default.
const maxOps = 128
