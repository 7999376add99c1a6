# The rooms of src/ and what each may include, lowest level first. This list is the build order, the link order and the
# law: the `layering` test reads it and fails on any #include that is not covered by a line here.
#
#   vesta_room(<room> LEVEL <n> USES <rooms it may include directly>)
#
# A room may only use rooms of a strictly lower level, except backend/cpu, which falls back on backend/reference.
vesta_room(base              LEVEL 0 USES)
vesta_room(safetensors       LEVEL 1 USES base)
vesta_room(quant             LEVEL 1 USES base)
vesta_room(snapshot          LEVEL 1 USES base)
vesta_room(gguf              LEVEL 2 USES base quant)
vesta_room(tokenizer         LEVEL 3 USES base gguf)
vesta_room(ops               LEVEL 2 USES base quant)
vesta_room(chat              LEVEL 4 USES base tokenizer)
vesta_room(grammar           LEVEL 4 USES base tokenizer)
vesta_room(kv                LEVEL 3 USES base quant ops)
vesta_room(sample            LEVEL 3 USES base)
vesta_room(backend/reference LEVEL 3 USES base quant ops)
vesta_room(backend/cpu       LEVEL 3 USES base quant ops backend/reference)
vesta_room(backend           LEVEL 4 USES base ops backend/reference backend/cpu)
vesta_room(model             LEVEL 4 USES base gguf quant ops kv)
vesta_room(engine            LEVEL 6 USES base gguf tokenizer chat kv ops backend model sample snapshot)
vesta_room(imatrix           LEVEL 5 USES base gguf quant tokenizer ops kv model)
vesta_room(convert           LEVEL 6 USES base gguf safetensors quant tokenizer imatrix model)
vesta_room(score             LEVEL 7 USES base tokenizer sample engine)
vesta_room(synth             LEVEL 7 USES base gguf quant convert)
vesta_room(store             LEVEL 7 USES base tokenizer snapshot engine)
