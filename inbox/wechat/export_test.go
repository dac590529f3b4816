package wechat

// EncryptWith is Encrypt with given random bytes, for published vectors.
func EncryptWith(aesKey, receiveID string, random [16]byte, message []byte) (string, error) {
	return encrypt(aesKey, receiveID, random, message)
}

// Decrypt undoes Encrypt.
func Decrypt(aesKey, encrypted string) (message []byte, receiveID string, err error) {
	block, iv, err := newCipher(aesKey)
	if err != nil {
		return nil, "", err
	}
	return decrypt(block, iv, encrypted)
}

// Digits is WeChat's signature of parts.
var Digits = digits
