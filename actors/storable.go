package actors

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"google.golang.org/protobuf/proto"
)

var (
	protoMessage    = reflect.TypeFor[proto.Message]()
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	emptyInterface  = reflect.TypeFor[any]()
)

// storables remembers the answer by type: a program has few of them.
var storables sync.Map // reflect.Type → error or nil

// storable says what would be lost by keeping a value of this type, as far as its type tells.
func storable(t reflect.Type) error {
	if known, ok := storables.Load(t); ok {
		err, _ := known.(error)
		return err
	}
	err := checkTop(t)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrMisuse, err)
	}
	storables.Store(t, err)
	return err
}

func checkTop(t reflect.Type) error {
	switch {
	case t == reflect.TypeFor[Raw](), t == reflect.TypeFor[None]():
		return nil
	case t.Kind() == reflect.Interface:
		return fmt.Errorf("%v is an interface: a stored value needs a type of its own", t)
	case t.Implements(protoMessage):
		return checkProto(t)
	case reflect.PointerTo(t).Implements(protoMessage) && !marshals(t):
		return fmt.Errorf("%v is a protobuf message by value: use *%v", t, t)
	}
	return checkJSON(t, t.String(), map[reflect.Type]bool{})
}

// checkProto refuses a struct that only embeds a message: what is decoded would be the message.
func checkProto(t reflect.Type) (err error) {
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("%v is not a protobuf message of its own (it embeds one?)", t)
		}
	}()
	m, ok := reflect.TypeAssert[proto.Message](reflect.Zero(t))
	if !ok || reflect.TypeOf(m.ProtoReflect().New().Interface()) != t {
		return fmt.Errorf("%v is not a protobuf message of its own (it embeds one?)", t)
	}
	return nil
}

// marshals says that the type has its own JSON, or text, in both directions.
func marshals(t reflect.Type) bool {
	p := t
	if t.Kind() != reflect.Pointer {
		p = reflect.PointerTo(t)
	}
	return p.Implements(jsonMarshaler) && p.Implements(jsonUnmarshaler) ||
		p.Implements(textMarshaler) && p.Implements(textUnmarshaler)
}

func checkJSON(t reflect.Type, path string, seen map[reflect.Type]bool) error {
	if seen[t] || marshals(t) {
		return nil
	}
	seen[t] = true
	if t.Implements(protoMessage) || reflect.PointerTo(t).Implements(protoMessage) {
		return fmt.Errorf("%s is a protobuf message inside JSON, which drops what is in it: make the whole message protobuf, or copy the fields", path)
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("%s is a %s, which cannot be stored", path, t.Kind())
	case reflect.Interface:
		if t != emptyInterface {
			return fmt.Errorf("%s is the interface %v, which cannot be read back", path, t)
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return checkJSON(t.Elem(), path, seen)
	case reflect.Map:
		switch k := t.Key(); {
		case k.Kind() >= reflect.Int && k.Kind() <= reflect.Uintptr, k.Kind() == reflect.String, marshals(k):
		default:
			return fmt.Errorf("%s has %v for keys, which JSON cannot keep", path, k)
		}
		return checkJSON(t.Elem(), path+"[…]", seen)
	case reflect.Struct:
		return checkStruct(t, path, seen)
	default:
	}
	return nil
}

func checkStruct(t reflect.Type, path string, seen map[reflect.Type]bool) error {
	kept := 0
	for f := range t.Fields() {
		switch {
		case f.Name == "_", f.Tag.Get("json") == "-":
			continue
		case !f.IsExported() && !embedsStruct(f):
			continue
		}
		kept++
		if err := checkJSON(f.Type, path+"."+f.Name, seen); err != nil {
			return err
		}
	}
	if kept == 0 && t.NumField() > 0 {
		return fmt.Errorf("%s has no exported field, so nothing of it would be stored", path)
	}
	return nil
}

// lossless is stricter, for what a handler takes and gives: no field may be dropped without a word.
func lossless(t reflect.Type) error {
	if err := storable(t); err != nil {
		return err
	}
	if t.Implements(protoMessage) || t == reflect.TypeFor[None]() {
		return nil
	}
	if err := checkDropped(t, t.String(), map[reflect.Type]bool{}); err != nil {
		return fmt.Errorf("%w: %w", ErrMisuse, err)
	}
	return nil
}

func checkDropped(t reflect.Type, path string, seen map[reflect.Type]bool) error {
	if seen[t] || marshals(t) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return checkDropped(t.Elem(), path, seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if f.Name == "_" || f.Tag.Get("json") == "-" {
				continue
			}
			if !f.IsExported() && !embedsStruct(f) {
				return fmt.Errorf("%s.%s is unexported, so JSON would drop it: export it, or say `json:\"-\"`", path, f.Name)
			}
			if err := checkDropped(f.Type, path+"."+f.Name, seen); err != nil {
				return err
			}
		}
	default:
	}
	return nil
}

// embedsStruct: JSON keeps the exported fields of an embedded struct, whatever its own name.
func embedsStruct(f reflect.StructField) bool {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		return f.Anonymous && f.IsExported() && t.Elem().Kind() == reflect.Struct
	}
	return f.Anonymous && t.Kind() == reflect.Struct
}
