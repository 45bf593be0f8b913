# run(<what> <variable> command...): stores output and error text together; stops when the command fails.
# run_failing(...): the same for a command that must fail.
function(run what variable)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed (${result}):\n${out}")
  endif()
  set(${variable} "${out}" PARENT_SCOPE)
endfunction()

function(run_failing what variable)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE result)
  if(result EQUAL 0)
    message(FATAL_ERROR "${what} should have failed:\n${out}")
  endif()
  set(${variable} "${out}" PARENT_SCOPE)
endfunction()

# CMake wraps its messages, so spaces and line breaks count as the same.
function(expect_in text wanted)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  string(FIND "${text}" "${wanted}" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "expected '${wanted}' in:\n${text}")
  endif()
endfunction()

# A folder that looks like LibTorch of another release.
function(make_fake_libtorch folder version)
  string(REPLACE "." ";" parts ${version})
  list(GET parts 0 major)
  list(GET parts 1 minor)
  list(GET parts 2 patch)
  file(WRITE ${folder}/include/torch/csrc/autograd/custom_function.h "")
  file(WRITE ${folder}/include/torch/headeronly/version.h
    "#define TORCH_VERSION_MAJOR ${major}\n#define TORCH_VERSION_MINOR ${minor}\n#define TORCH_VERSION_PATCH ${patch}\n")
  file(WRITE ${folder}/lib/libtorch_cpu.so "")
  file(WRITE ${folder}/lib/libc10.so "")
endfunction()
