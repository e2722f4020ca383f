package actors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Raw is a message or a result whose bytes Weir does not look into.
type Raw struct {
	// ContentType is the media type, as the producer named it; may be empty.
	ContentType string
	Bytes       []byte
}

// None is the message or the result where there is nothing to say. As a message it takes any payload and reads none.
type None = *struct{}

// stored is a value as it lies in a store or a stream. A nil protobuf message and None have neither type nor bytes.
type stored struct {
	contentType string
	data        []byte
}

const jsonType = "application/json"

// Encode writes a value as Submit does: a protobuf message in its binary form under
// "application/protobuf; proto=<full name>", Raw as it is, and everything else as JSON. The same value gives the same bytes.
// A value that cannot be kept is ErrMisuse.
func Encode(v any) (contentType string, data []byte, err error) {
	s, err := encode(v)
	return s.contentType, s.data, err
}

// Decode undoes Encode for payloads of any producer. For a protobuf message it takes the binary form and protojson; without
// a content type a leading `{` means JSON. A content type that names another message is an error: wrong bytes often
// decode "successfully".
func Decode[T any](contentType string, data []byte) (T, error) {
	return decode[T](stored{contentType, data}, true)
}

func encode(v any) (stored, error) {
	switch v := v.(type) {
	case nil:
		return stored{}, fmt.Errorf("%w: a nil interface cannot be stored", ErrMisuse)
	case Raw:
		return stored{v.ContentType, bytes.Clone(v.Bytes)}, nil
	case None:
		return stored{}, nil
	case proto.Message:
		return encodeProto(v)
	}
	if err := storable(reflect.TypeOf(v)); err != nil {
		return stored{}, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return stored{}, fmt.Errorf("%w: %T cannot be stored: %w", ErrMisuse, v, err)
	}
	return stored{jsonType, b}, nil
}

func encodeProto(m proto.Message) (stored, error) {
	t := reflect.TypeOf(m)
	if err := storable(t); err != nil {
		return stored{}, err
	}
	if t.Kind() == reflect.Pointer && reflect.ValueOf(m).IsNil() {
		return stored{}, nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return stored{}, fmt.Errorf("%w: %T cannot be stored: %w", ErrMisuse, m, err)
	}
	return stored{protoType(m), b}, nil
}

func protoType(m proto.Message) string {
	return "application/protobuf; proto=" + string(m.ProtoReflect().Descriptor().FullName())
}

// decode reads a value. A payload comes from any producer; what a store gives back was written by encode, and nothing
// at all stands for nil there.
func decode[T any](s stored, payload bool) (T, error) {
	var v T
	switch p := any(&v).(type) {
	case *Raw:
		*p = Raw{s.contentType, bytes.Clone(s.data)} // the author's to change
		return v, nil
	case *None:
		return v, nil
	}
	if !payload && s.contentType == "" && len(s.data) == 0 {
		return v, nil
	}
	media, params, err := mediaType(s.contentType)
	if err != nil {
		return v, err
	}
	if m, ok := any(v).(proto.Message); ok {
		if err := storable(reflect.TypeFor[T]()); err != nil {
			return v, err
		}
		fresh := m.ProtoReflect().New().Interface()
		if err := decodeProto(fresh, media, params, s.data); err != nil {
			return v, err
		}
		return fresh.(T), nil
	}
	return v, decodeJSON(&v, media, s.data)
}

func mediaType(contentType string) (string, map[string]string, error) {
	if contentType == "" {
		return "", nil, nil
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", nil, fmt.Errorf("content type %.80q: %w", contentType, err)
	}
	return media, params, nil
}

func isJSON(media string) bool {
	return media == jsonType || media == "text/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")
}

func decodeProto(m proto.Message, media string, params map[string]string, data []byte) error {
	want := string(m.ProtoReflect().Descriptor().FullName())
	for _, param := range []string{"proto", "messagetype"} {
		if got, ok := params[param]; ok && got != want {
			return fmt.Errorf("payload is a %.120s, the handler takes a %s", got, want)
		}
	}
	var err error
	switch {
	case isJSON(media), media == "" && bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")):
		// Unknown fields are a newer producer's, as they are in the binary form.
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
	case media == "", media == "application/protobuf", media == "application/x-protobuf",
		media == "application/vnd.google.protobuf", media == "application/octet-stream":
		err = proto.Unmarshal(data, m)
	default:
		return fmt.Errorf("content type %q does not fit %s", media, want)
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", want, err)
	}
	return nil
}

var errNotUTF8 = errors.New("is not UTF-8")

func decodeJSON[T any](v *T, media string, data []byte) error {
	switch {
	case media == "text/plain":
		// A string is the only thing that plain text can be.
		if s, ok := any(v).(*string); ok && utf8.Valid(data) {
			*s = string(data)
			return nil
		}
		return fmt.Errorf("text does not fit %T", *v)
	case media != "" && !isJSON(media):
		return fmt.Errorf("content type %q does not fit %T", media, *v)
	case !utf8.Valid(data):
		return fmt.Errorf("JSON %w", errNotUTF8) // encoding/json would replace the bytes silently
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode JSON as %T: %w", *v, err)
	}
	return nil
}
