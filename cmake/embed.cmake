# Writes a C file that holds text files as arrays: cmake -DOUT=file.c -DNAME=symbol -DFILES="a;b" -P embed.cmake
# The symbol is an array of {file name, text, bytes}, ended by a NULL name.
set(body "")
set(table "")
set(index 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(APPEND body "static const char text_${index}[] = {${bytes}0};\n")
  string(APPEND table "    {\"${name}\", text_${index}, sizeof text_${index} - 1},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT} "// Generated from ${NAME}'s files.\n#include \"base/embedded.h\"\n${body}\
const md_embedded ${NAME}[] = {\n${table}    {NULL, NULL, 0},\n};\n")
