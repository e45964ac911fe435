package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var client = http.Client{Timeout: 5 * time.Minute}
var waits = []int{1, 2, 4, 8, 16, 0} // seconds after each attempt

// convert writes a JPEG beside the photo. What fails for a while is repeated under the same idempotency key,
// so that it is charged once.
func convert(photo string) error {
	content, err := os.ReadFile(photo)
	if err != nil {
		return err
	}
	var form bytes.Buffer
	writer := multipart.NewWriter(&form)
	part, _ := writer.CreateFormFile("file", filepath.Base(photo))
	part.Write(content)
	writer.WriteField("output_format", "jpeg")
	writer.Close()
	key := make([]byte, 16)
	rand.Read(key)

	for _, wait := range waits {
		request, _ := http.NewRequest("POST", "{url}/convert", bytes.NewReader(form.Bytes()))
		request.Header.Set("Authorization", "Bearer "+os.Getenv("CONVERTD_API_KEY"))
		request.Header.Set("Content-Type", writer.FormDataContentType())
		request.Header.Set("Idempotency-Key", hex.EncodeToString(key))
		var response *http.Response
		var result []byte
		if response, err = client.Do(request); err == nil {
			result, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		if err == nil && response.StatusCode == 200 {
			return os.WriteFile(strings.TrimSuffix(photo, filepath.Ext(photo))+".jpg", result, 0o644)
		}
		var body struct {
			Error struct {
				Code, Message string
				Retryable     bool
				RequestID     string `json:"request_id"`
			}
		}
		if err == nil {
			err = json.Unmarshal(result, &body) // fails if a proxy responds
		}
		if body.Error.Code != "" {
			err = fmt.Errorf("%s: %s (%s)", body.Error.Code, body.Error.Message, body.Error.RequestID)
			if !body.Error.Retryable {
				break
			}
			if seconds, unknown := strconv.Atoi(response.Header.Get("Retry-After")); unknown == nil {
				wait = seconds
			}
		}
		time.Sleep(time.Duration(wait) * time.Second)
	}
	return fmt.Errorf("%s: %w", photo, err)
}

func main() {
	photos := make(chan string)
	var workers sync.WaitGroup
	var failed atomic.Bool
	for range [4]int{} {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for photo := range photos {
				if err := convert(photo); err != nil {
					log.Print(err)
					failed.Store(true)
				}
			}
		}()
	}
	err := filepath.WalkDir("photos", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.EqualFold(filepath.Ext(path), ".heic") {
			photos <- path
		}
		return err
	})
	close(photos)
	workers.Wait()
	if err != nil {
		log.Fatal(err)
	}
	if failed.Load() {
		os.Exit(1)
	}
}
