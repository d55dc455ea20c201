package store

import (
	"hash/crc64"
	"testing"
)

func TestCRC64HasTheServicesCheckValue(t *testing.T) {
	if got := crc64.Checksum([]byte("123456789"), crcTable); got != 11051210869376104954 {
		t.Errorf("CRC-64 of 123456789 is %d", got)
	}
}

func TestCombinedCRC64IsThatOfTheWhole(t *testing.T) {
	for _, a := range []int{0, 1, 9, 1000, 70_001} {
		for _, b := range []int{0, 1, 8, 4096, 123_457} {
			first, second := pattern(a, a), pattern(b, b)
			whole := crc64.Checksum(append(append([]byte(nil), first...), second...), crcTable)
			got := CombineCRC64(crc64.Checksum(first, crcTable), crc64.Checksum(second, crcTable), int64(b))
			if got != whole {
				t.Errorf("%d and %d bytes: %x, want %x", a, b, got, whole)
			}
		}
	}
}
