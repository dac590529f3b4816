package wechat

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Sign returns the query that WeChat would send with a plaintext push, or add
// echostr to for a handshake, for tests and for whoever plays WeChat's part. The
// nonce is 1 to 128 printable ASCII characters; WeChat's are digits.
func Sign(token string, at time.Time, nonce string) url.Values {
	t := strconv.FormatInt(at.Unix(), 10)
	return url.Values{"signature": {digits(token, t, nonce)}, "timestamp": {t}, "nonce": {nonce}}
}

// Seal returns the query and the body that WeChat would send with a push in security
// mode, for tests and for whoever plays WeChat's part: the push encrypted for
// an app ID, in XML if it begins as XML does and in JSON otherwise, and signed. It
// fails on a Secret.AESKey that is not one.
func Seal(s Secret, appID string, at time.Time, nonce string, push []byte) (query url.Values, body []byte, err error) {
	encrypted, err := Encrypt(s.AESKey, appID, push)
	if err != nil {
		return nil, nil, err
	}
	if isXML(trim(push)) {
		body = []byte("<xml><Encrypt><![CDATA[" + encrypted + "]]></Encrypt></xml>")
	} else {
		body = []byte(`{"Encrypt":"` + encrypted + `"}`)
	}
	return signEncrypted(s.Token, at, nonce, encrypted), body, nil
}

// SignSealed returns the query for a body that is encrypted already, as a recorded
// one is. It fails when the body has no Encrypt, or more than one.
func SignSealed(token string, at time.Time, nonce string, body []byte) (url.Values, error) {
	top, err := read(body)
	if err != nil {
		return nil, fmt.Errorf("wechat: sign: %w", err)
	}
	encrypted := top.encrypt()
	if encrypted == "" {
		return nil, errors.New("wechat: sign: the body has no Encrypt, or more than one")
	}
	return signEncrypted(token, at, nonce, encrypted), nil
}

func signEncrypted(token string, at time.Time, nonce, encrypted string) url.Values {
	q := Sign(token, at, nonce)
	q.Set("encrypt_type", "aes")
	q.Set("msg_signature", digits(token, q.Get("timestamp"), nonce, encrypted))
	return q
}

func digits(parts ...string) string { return hex.EncodeToString(sum(parts...)) }

// Encrypt returns a message as Encrypt carries it, in either direction: base64 of
// AES-256-CBC over 16 random bytes, the message's length, the message and the
// receive ID. It fails on a key that is not 43 characters of base64 and on a message
// of 4 GiB or more.
func Encrypt(aesKey, receiveID string, message []byte) (string, error) {
	var random [16]byte
	rand.Read(random[:]) // never fails
	return encrypt(aesKey, receiveID, random, message)
}

func encrypt(aesKey, receiveID string, random [16]byte, message []byte) (string, error) {
	block, iv, err := newCipher(aesKey)
	if err != nil {
		return "", fmt.Errorf("wechat: encrypt: %w", err)
	}
	if uint64(len(message)) > 1<<32-1 {
		return "", errors.New("wechat: encrypt: a message of 4 GiB or more")
	}
	b := make([]byte, 0, len(random)+4+len(message)+len(receiveID)+padBlock)
	b = append(b, random[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	b = append(append(b, message...), receiveID...)
	n := padBlock - len(b)%padBlock
	b = append(b, bytes.Repeat([]byte{byte(n)}, n)...)
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(b, b)
	return base64.StdEncoding.EncodeToString(b), nil
}

// padBlock is the block that WeChat pads to, which is not that of AES: a check that
// takes at most 16 bytes of padding refuses every second message.
const padBlock = 32

// decrypt undoes encrypt. The errors quote nothing.
func decrypt(block cipher.Block, iv []byte, encrypted string) (message []byte, receiveID string, err error) {
	b, err := base64.StdEncoding.DecodeString(encrypted)
	if err != nil {
		return nil, "", errors.New("it is not base64")
	}
	if len(b) == 0 || len(b)%padBlock != 0 {
		return nil, "", fmt.Errorf("%d bytes are not whole blocks of %d", len(b), padBlock)
	}
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(b, b)
	if b, err = unpad(b, padBlock); err != nil {
		return nil, "", err
	}
	const header = 16 + 4
	if len(b) < header {
		return nil, "", errors.New("it is shorter than its header")
	}
	n, rest := binary.BigEndian.Uint32(b[16:header]), b[header:]
	if uint64(n) > uint64(len(rest)) {
		return nil, "", errors.New("its length is longer than itself")
	}
	return rest[:n:n], string(rest[n:]), nil
}

// unpad takes the padding of PKCS#7 off.
func unpad(b []byte, block int) ([]byte, error) {
	n := int(b[len(b)-1])
	if n < 1 || n > block || n > len(b) || !bytes.Equal(b[len(b)-n:], bytes.Repeat([]byte{byte(n)}, n)) {
		return nil, errors.New("its padding is wrong")
	}
	return b[:len(b)-n], nil
}

// newCipher reads an EncodingAESKey: the base64 of 32 bytes without the "=" at its
// end. The initialisation vector is the key's first half, as WeChat has it.
func newCipher(aesKey string) (cipher.Block, []byte, error) {
	key, err := base64.StdEncoding.DecodeString(aesKey + "=")
	if err != nil || len(aesKey) != 43 || len(key) != 32 {
		return nil, nil, errors.New("the AESKey is not 43 characters of base64")
	}
	block, err := aes.NewCipher(key)
	return block, key[:aes.BlockSize], err
}
