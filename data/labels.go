package data

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spc/internal/filetype"
	"spc/internal/regular"
	"spc/internal/short"
	"spc/ir/tensor"
)

// listed is a file that a .csv names, and the line there.
type listed struct {
	name string
	line int
}

// readLabels reads classes, and where the file is a .csv with a column file, the
// files that have them.
func readLabels(path string) (files []listed, labels []int, err error) {
	if strings.EqualFold(filepath.Ext(path), ".csv") {
		return readCSV(path)
	}
	head, err := firstBytes(path)
	if err != nil {
		return nil, nil, err
	}
	var t *tensor.Tensor
	switch {
	case bytes.HasPrefix(head, []byte("\x93NUMPY")):
		if t, err = tensor.ReadNPY(path); err != nil {
			return nil, nil, corrupt(path, "%s", strings.TrimPrefix(err.Error(), path+": "))
		}
	case isIDX(head):
		if t, err = ReadIDX(path); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, corrupt(path, "want labels in a .csv, npy or idx file%s", filetype.Instead(head))
	}
	if !t.DType().IsInt() || t.Rank() != 1 {
		return nil, nil, invalid(path, "holds %v, want one integer for each image", t)
	}
	labels = t.Ints()
	for i, c := range labels {
		if c < 0 {
			return nil, nil, invalid(path, "label %d is %d, want a class from 0", i, c)
		}
	}
	return nil, labels, nil
}

// readCSV finds the columns by the names in the first line.
func readCSV(path string) (files []listed, labels []int, err error) {
	f, _, err := regular.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.ReuseRecord = true
	names, err := r.Read()
	if err != nil {
		return nil, nil, corrupt(path, "%s", csvError(err))
	}
	column := func(name string) int {
		return slices.IndexFunc(names, func(s string) bool {
			return strings.EqualFold(strings.TrimSpace(strings.TrimPrefix(s, "\ufeff")), name)
		})
	}
	file, class := column("file"), column("class_index")
	if class < 0 {
		return nil, nil, invalid(path, "no column class_index in the first line, want file and class_index")
	}
	for {
		rec, err := r.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, corrupt(path, "%s", csvError(err))
		}
		c, err := strconv.Atoi(strings.TrimSpace(rec[class]))
		if err != nil || c < 0 {
			line, _ := r.FieldPos(class)
			return nil, nil, invalid(path, "line %d: class_index %q, want a class from 0", line, short.Text(rec[class], maxField))
		}
		labels = append(labels, c)
		if file >= 0 {
			line, _ := r.FieldPos(file)
			files = append(files, listed{rec[file], line})
		}
	}
	if len(labels) == 0 {
		return nil, nil, invalid(path, "no line after the first")
	}
	return files, labels, nil
}

func csvError(err error) string {
	if errors.Is(err, io.EOF) {
		return "the file is empty, want columns file and class_index"
	}
	return err.Error()
}
