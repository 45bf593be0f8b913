# Finds LibTorch 2.15 and defines LibTorch::LibTorch. Needs no CUDA toolkit.
#
# Looks at a target the consumer already has, then in LIBTORCH_ROOT (variable or environment), CMAKE_PREFIX_PATH,
# the folder that scripts/setup fills (REPRISE_DEPS_DIR), and last in the torch package of python3.
# Another release is refused: src/autograd uses internals that change between releases.
set(LibTorch_REQUIRED_VERSION 2.15)

if(TARGET LibTorch::LibTorch)
  set(LibTorch_FOUND TRUE)
  return()
endif()

if(NOT LIBTORCH_ROOT)
  set(LIBTORCH_ROOT "$ENV{LIBTORCH_ROOT}")
endif()
set(_roots ${LIBTORCH_ROOT})
if(NOT _roots)
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND _roots "${prefix}" "${prefix}/torch" "${prefix}/../..")
  endforeach()
  list(APPEND _roots "${REPRISE_DEPS_DIR}/torch")
endif()
find_path(LibTorch_INCLUDE_DIR torch/csrc/autograd/custom_function.h
  HINTS ${_roots} PATH_SUFFIXES include NO_DEFAULT_PATH)
if(NOT LibTorch_INCLUDE_DIR AND NOT LIBTORCH_ROOT)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE _python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(LibTorch_INCLUDE_DIR torch/csrc/autograd/custom_function.h
    HINTS "${_python_torch}/include" NO_DEFAULT_PATH)
endif()

if(LibTorch_INCLUDE_DIR)
  get_filename_component(LibTorch_DIR "${LibTorch_INCLUDE_DIR}" DIRECTORY)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h" _line
      REGEX "^#define TORCH_VERSION_${part} ")
    string(REGEX REPLACE "[^0-9]" "" _${part} "${_line}")
  endforeach()
  set(LibTorch_VERSION "${_MAJOR}.${_MINOR}.${_PATCH}")
  if(NOT "${_MAJOR}.${_MINOR}" STREQUAL LibTorch_REQUIRED_VERSION)
    message(FATAL_ERROR
      "Reprise needs LibTorch ${LibTorch_REQUIRED_VERSION}, found ${LibTorch_VERSION} in ${LibTorch_DIR}.\n"
      "It uses LibTorch's internals (saved-tensor hooks, engine), which change between releases.\n"
      "Point LIBTORCH_ROOT at LibTorch ${LibTorch_REQUIRED_VERSION}, or run scripts/setup and leave it unset.")
  endif()
endif()

foreach(lib torch_cpu c10 torch_cuda c10_cuda)
  find_library(LibTorch_${lib}_LIBRARY ${lib} HINTS "${LibTorch_DIR}/lib" NO_DEFAULT_PATH)
endforeach()
find_library(LibTorch_gomp_LIBRARY NAMES libgomp.so.1 HINTS "${LibTorch_DIR}/lib" NO_DEFAULT_PATH)
mark_as_advanced(LibTorch_INCLUDE_DIR LibTorch_gomp_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY LibTorch_INCLUDE_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run scripts/setup, or set LIBTORCH_ROOT to an unpacked LibTorch 2.15.")

if(LibTorch_FOUND)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_compile_features(LibTorch::LibTorch INTERFACE cxx_std_20)
  # The wheel's libraries refer to CUDA libraries that a CPU-only machine does not have.
  target_link_options(LibTorch::LibTorch INTERFACE LINKER:--allow-shlib-undefined)
  target_link_libraries(LibTorch::LibTorch INTERFACE
    "${LibTorch_torch_cpu_LIBRARY}" "${LibTorch_c10_LIBRARY}")
  if(LibTorch_torch_cuda_LIBRARY AND LibTorch_c10_cuda_LIBRARY)
    # Nothing refers to these by name; they register the CUDA kernels when loaded.
    target_link_libraries(LibTorch::LibTorch INTERFACE
      -Wl,--push-state,--no-as-needed "${LibTorch_torch_cuda_LIBRARY}" "${LibTorch_c10_cuda_LIBRARY}" -Wl,--pop-state)
  endif()
endif()
