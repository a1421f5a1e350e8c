module example.com/quill

go 1.19
