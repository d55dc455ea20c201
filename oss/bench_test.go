package oss

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/oss/credentials"
)

// benchServer answers ranged GETs of object out of memory, as fast as net/http
// does. It runs in the benchmark's own process: figures include its work.
func benchServer(b *testing.B, size int) (*httptest.Server, Object) {
	body := make([]byte, size)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, until := askedRange(r)
		h := w.Header()
		h["Etag"] = []string{`"5B3C1A2E053D763E1B002CC607C5A0FE"`}
		h["Content-Range"] = []string{fmt.Sprintf("bytes %d-%d/%d", from, until-1, size)}
		h["Content-Length"] = []string{strconv.FormatInt(until-from, 10)}
		h["X-Oss-Hash-Crc64ecma"] = []string{"3231342946509354535"}
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(body[from:until])
	}))
	b.Cleanup(server.Close)
	return server, Object{Key: "dir/some/key-000123.jpg", ETag: "5B3C1A2E053D763E1B002CC607C5A0FE", Size: int64(size)}
}

var benchSizes = []struct{ size, parallel int }{{4 << 10, 32}, {112 << 10, 32}, {8 << 20, 16}}

func BenchmarkReadRange(b *testing.B) {
	for _, region := range []string{"", "cn-hangzhou"} {
		for _, s := range benchSizes {
			b.Run(fmt.Sprintf("region=%s/size=%d/parallel=%d", region, s.size, s.parallel), func(b *testing.B) {
				server, o := benchServer(b, s.size)
				source, err := credentials.Open(credentials.Config{AccessKeyID: "id", AccessKeySecret: "secret"}, quietLog())
				if err != nil {
					b.Fatal(err)
				}
				c, err := Open(Config{Endpoint: server.URL, Bucket: "bucket", Region: region, Credentials: source}, nil, nil, quietLog())
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				bucket := c.As(Demand)
				b.SetBytes(int64(s.size))
				b.SetParallelism(s.parallel / 2)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					buffer := make([]byte, s.size)
					for pb.Next() {
						if _, err := bucket.ReadRange(context.Background(), RangeRequest{Object: o, Buffer: buffer, Arrived: func(int) {}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkHead asks for what an object's metadata says, as attributes are.
func BenchmarkHead(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Etag"] = []string{`"5B3C1A2E053D763E1B002CC607C5A0FE"`}
		h["Content-Length"] = []string{"1000"}
		h["Last-Modified"] = []string{"Fri, 24 Feb 2012 08:43:07 GMT"}
		h["X-Oss-Meta-Mode"] = []string{"33188"}
	}))
	b.Cleanup(server.Close)
	for _, region := range []string{"", "cn-hangzhou"} {
		b.Run("region="+region, func(b *testing.B) {
			source, err := credentials.Open(credentials.Config{AccessKeyID: "id", AccessKeySecret: "secret"}, quietLog())
			if err != nil {
				b.Fatal(err)
			}
			c, err := Open(Config{Endpoint: server.URL, Bucket: "bucket", Region: region, Credentials: source}, nil, nil, quietLog())
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			bucket := c.As(Demand)
			b.SetParallelism(16)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := bucket.Head(context.Background(), "dir/some/key-000123.jpg"); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkBareGet is what net/http alone takes for the same.
func BenchmarkBareGet(b *testing.B) {
	for _, s := range benchSizes {
		b.Run(fmt.Sprintf("size=%d/parallel=%d", s.size, s.parallel), func(b *testing.B) {
			server, _ := benchServer(b, s.size)
			transport := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true, ReadBufferSize: readBuffer}
			defer transport.CloseIdleConnections()
			b.SetBytes(int64(s.size))
			b.SetParallelism(s.parallel / 2)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				buffer := make([]byte, s.size)
				for pb.Next() {
					req, err := http.NewRequest(http.MethodGet, server.URL+"/bucket/key", nil)
					if err != nil {
						b.Error(err)
						return
					}
					req.Header.Set("Range", "bytes=0-"+strconv.Itoa(s.size-1))
					resp, err := transport.RoundTrip(req)
					if err != nil {
						b.Error(err)
						return
					}
					if _, err := io.ReadFull(resp.Body, buffer); err != nil {
						b.Error(err)
					}
					_ = resp.Body.Close()
				}
			})
		})
	}
}

func listingOf(n int) []byte {
	var x strings.Builder
	x.WriteString(`<?xml version="1.0" encoding="UTF-8"?>` + "\n<ListBucketResult>\n  <Name>bucket</Name><Prefix></Prefix><MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><KeyCount>1000</KeyCount><NextContinuationToken>CgJiYw--</NextContinuationToken>\n")
	for i := range n {
		fmt.Fprintf(&x, "  <Contents>\n    <Key>train%%2Fn01440764%%2FILSVRC2012_val_%08d.JPEG</Key>\n    <LastModified>2012-02-24T08:43:07.000Z</LastModified>\n    <ETag>\"5B3C1A2E053D763E1B002CC607C5%04d\"</ETag>\n    <Type>Normal</Type>\n    <Size>%d</Size>\n    <StorageClass>Standard</StorageClass>\n  </Contents>\n", i, i, 100_000+i)
	}
	x.WriteString("</ListBucketResult>")
	return []byte(x.String())
}

func BenchmarkParseListing(b *testing.B) {
	text := listingOf(1000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if page, err := parseListing(text, &ListRequest{}); err != nil || len(page.Objects) != 1000 {
			b.Fatal(err)
		}
	}
}
